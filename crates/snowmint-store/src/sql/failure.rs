//! Why a statement on PostgreSQL or MySQL failed, and what that means for a record.
//! Each database has its own codes: see [`ServerErrors`].

use std::io;
use std::time::Duration;

use sqlx::error::DatabaseError;

use crate::StoreErrorKind;
use crate::error::{Effect, chain};
use crate::net::{HostRefusal, trust};

/// The reason why a statement failed.
#[derive(Debug)]
pub(crate) enum SqlFailure {
    /// The statement was not sent.
    NotSent(HostRefusal),
    /// The statement was sent; the database or the connection failed it.
    Sql(sqlx::Error),
    /// The statement was sent, and its answer shows that the server must not be used any more.
    Refused(HostRefusal),
    /// The statement was sent, and no answer came in time.
    Late(Duration),
}

impl From<sqlx::Error> for SqlFailure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl SqlFailure {
    /// Returns the refusal of a server after a statement.
    pub(crate) fn refused(kind: StoreErrorKind, text: impl Into<String>) -> Self {
        Self::Refused(HostRefusal::new(kind, text))
    }
}

/// The errors of a database: what they mean for a record, and what an operator can do about them.
pub(crate) trait ServerErrors {
    /// An error of the server.
    type Error: DatabaseError;
    /// The table of the records, for the node or a DBA to create.
    const TABLE: &str;
    /// The parameter of the URL that names authorities to trust.
    const CA: &str;
    /// The text after "no answer within 5000 ms".
    const LATE: &str = "";

    /// Returns the kind of a refused login.
    fn login_kind(error: &Self::Error) -> StoreErrorKind;

    /// Returns the kind of a failed statement.
    fn statement_kind(error: &Self::Error, effect: Effect) -> StoreErrorKind;

    /// Returns what an operator can do; empty if nothing is known.
    fn advice(error: &Self::Error) -> &'static str;

    /// Returns whether the server refused a statement because it accepts no writes.
    fn is_read_only(error: &Self::Error) -> bool;

    /// Returns whether the user may not create a table.
    fn may_not_create(error: &Self::Error) -> bool;

    /// Returns the error as text, with its code.
    fn quote(error: &Self::Error) -> String;

    /// Returns what an operator can do about a login that this client does not support; `None` for other
    /// errors.
    fn unsupported_login(_error: &sqlx::Error) -> Option<String> {
        None
    }

    /// Returns the kind and the text of an error that is not what it seems.
    fn special_meaning(_error: &sqlx::Error, _effect: Effect) -> Option<(StoreErrorKind, String)> {
        None
    }
}

/// Returns the error of the server, if it is one.
pub(crate) fn server_error<D: ServerErrors>(error: &sqlx::Error) -> Option<&D::Error> {
    error.as_database_error()?.try_downcast_ref()
}

/// Returns the kind and the text of a failed statement. `advice` precedes that of the database.
pub(super) fn meaning<D: ServerErrors>(
    failure: SqlFailure,
    effect: Effect,
    advice: impl Fn(&D::Error) -> Option<String>,
) -> (StoreErrorKind, String) {
    let error = match failure {
        SqlFailure::NotSent(HostRefusal { kind, text }) | SqlFailure::Refused(HostRefusal { kind, text }) => {
            return (kind, text);
        }
        SqlFailure::Late(limit) => {
            let text = format!("no answer within {} ms{}", limit.as_millis(), D::LATE);
            return (effect.unanswered(), text);
        }
        SqlFailure::Sql(error) => error,
    };
    D::special_meaning(&error, effect).unwrap_or_else(|| match server_error::<D>(&error) {
        Some(said) => {
            let advice = advice(said).unwrap_or_else(|| D::advice(said).to_owned());
            (D::statement_kind(said, effect), quote_with::<D>(said, &advice))
        }
        None => (connection_error_kind(&error, effect), chain(&error)),
    })
}

/// Returns whether a server refused a statement because it accepts no writes.
pub(super) fn is_demoted<D: ServerErrors>(failure: &SqlFailure) -> bool {
    match failure {
        SqlFailure::Refused(refusal) => refusal.kind == StoreErrorKind::ReadOnly,
        SqlFailure::Sql(error) => server_error::<D>(error).is_some_and(D::is_read_only),
        _ => false,
    }
}

/// Turns an error before the first statement into the reason why there is no connection.
pub(crate) fn refusal<D: ServerErrors>(error: &sqlx::Error) -> HostRefusal {
    if let Some(said) = server_error::<D>(error) {
        return HostRefusal::new(D::login_kind(said), quote_with::<D>(said, D::advice(said)));
    }
    if let Some(text) = D::unsupported_login(error) {
        return HostRefusal::new(StoreErrorKind::Other, text);
    }
    let text = chain(error);
    let text = trust::untrusted(&text, D::CA).unwrap_or(text);
    HostRefusal::new(connection_error_kind(error, Effect::Reads), text)
}

/// Returns why the user may not create the table, with the SQL that a DBA has to run; `None` for other
/// failures.
pub(super) fn refused_table<D: ServerErrors>(failure: &SqlFailure) -> Option<String> {
    let SqlFailure::Sql(error) = failure else { return None };
    let said = server_error::<D>(error).filter(|it| D::may_not_create(it))?;
    let table = D::TABLE.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(quote_with::<D>(said, &format!("let a user with that right run: {table}")))
}

fn quote_with<D: ServerErrors>(said: &D::Error, advice: &str) -> String {
    let found = D::quote(said);
    if advice.is_empty() { found } else { format!("{found}; {advice}") }
}

/// Returns the kind of an error of the connection, or of the rows in its answer.
fn connection_error_kind(error: &sqlx::Error, effect: Effect) -> StoreErrorKind {
    match (effect, error) {
        (Effect::Reads, sqlx::Error::Tls(_) | sqlx::Error::Configuration(_)) => StoreErrorKind::Other,
        // An untrusted certificate.
        (Effect::Reads, sqlx::Error::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
            StoreErrorKind::Other
        }
        (Effect::Reads, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)) => StoreErrorKind::Corrupt,
        _ => effect.unanswered(),
    }
}
