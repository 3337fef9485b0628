//! The one table from what went wrong to what each protocol says: HTTP status and title, RESP prefix.
//! Metrics use its names too, so that a graph and an answer call a failure the same.

/// What can go wrong, over all protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// No such namespace here.
    UnknownNamespace,
    /// Not the name of a namespace.
    BadNamespace,
    /// Not a count, or out of range.
    BadCount,
    /// Not an id, or not of this layout.
    BadId,
    /// No lease under which ids could be made.
    NotReady,
    /// The clock went back too far.
    ClockBehind,
    /// More ids than could be made while a request may wait.
    Busy,
    /// The layout has no timestamps left.
    LayoutEnded,
    /// As many namespaces as there may be.
    TooManyNamespaces,
    /// Not a counter that Redis' commands could increment.
    NotCounting,
    /// Not of the scheme that a path serves.
    WrongScheme,
    /// A namespace has used all its numbers.
    NumbersEnded,
    /// No such path or command.
    Unknown,
    /// The path exists, not for this method.
    BadMethod,
    /// Arguments, parameters or their encoding are wrong.
    BadRequest,
    /// As many clients as there may be.
    TooManyClients,
    /// Addressed to a host that this server is not.
    UnknownHost,
    /// A web page of another site asks for ids.
    CrossSite,
}

/// How one kind is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The name in metrics, and the end of the problem type's URN.
    pub name: &'static str,
    /// The HTTP status code.
    pub http: u16,
    /// The problem's title.
    pub title: &'static str,
    /// The first word of the RESP error.
    pub resp: &'static str,
}

impl Kind {
    /// Every kind, in the order of the table.
    pub const ALL: [Self; 18] = [
        Self::UnknownNamespace,
        Self::BadNamespace,
        Self::BadCount,
        Self::BadId,
        Self::NotReady,
        Self::ClockBehind,
        Self::Busy,
        Self::LayoutEnded,
        Self::TooManyNamespaces,
        Self::NotCounting,
        Self::WrongScheme,
        Self::NumbersEnded,
        Self::Unknown,
        Self::BadMethod,
        Self::BadRequest,
        Self::TooManyClients,
        Self::UnknownHost,
        Self::CrossSite,
    ];

    /// How it is said.
    ///
    /// `TRYAGAIN` is what Redis clients know as "ask again soon": some do so by themselves.
    pub const fn status(self) -> Status {
        match self {
            Self::UnknownNamespace => row("unknown-namespace", 404, "Unknown namespace", "NONAMESPACE"),
            Self::BadNamespace => row("bad-namespace", 400, "Not the name of a namespace", "ERR"),
            Self::BadCount => row("bad-count", 400, "Count out of range", "ERR"),
            Self::BadId => row("bad-id", 400, "Not an id of this server", "ERR"),
            Self::NotReady => row("not-ready", 503, "No lease to make ids under", "NOTREADY"),
            Self::ClockBehind => row("clock-behind", 503, "The clock went back", "CLOCKBEHIND"),
            Self::Busy => row("busy", 503, "Too many ids asked for at once", "TRYAGAIN"),
            Self::LayoutEnded => row("layout-ended", 500, "The layout's time ran out", "LAYOUTENDED"),
            Self::TooManyNamespaces => row("too-many-namespaces", 403, "Too many namespaces", "ERR"),
            Self::NotCounting => row("not-counting", 400, "Not a counter", "WRONGTYPE"),
            Self::WrongScheme => row("wrong-scheme", 400, "Not a namespace for this path", "ERR"),
            Self::NumbersEnded => row("numbers-ended", 500, "The numbers ran out", "NUMBERSENDED"),
            Self::Unknown => row("unknown", 404, "No such path", "ERR"),
            Self::BadMethod => row("bad-method", 405, "Method not allowed here", "ERR"),
            Self::BadRequest => row("bad-request", 400, "Request not understood", "ERR"),
            Self::TooManyClients => row("too-many-clients", 503, "Too many connections", "ERR"),
            Self::UnknownHost => row("unknown-host", 421, "Not a host of this server", "ERR"),
            Self::CrossSite => row("cross-site", 403, "Request of another web site", "ERR"),
        }
    }
}

const fn row(name: &'static str, http: u16, title: &'static str, resp: &'static str) -> Status {
    Status { name, http, title, resp }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::num::NonZeroU64;

    use snowmint::error::Snippet;
    use snowmint::{GenerateError, Generator, Layout, ManualClock};
    use snowmint_cluster::NoId;

    use super::*;
    use crate::mint::MintError;

    #[test]
    fn every_kind_has_a_row_of_its_own_in_the_order_of_the_metrics() {
        let mut names = HashSet::new();
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            let Status { name, http, title, resp } = kind.status();
            assert_eq!(kind as usize, index, "{kind:?}: metrics are indexed by it");
            assert!(names.insert(name), "{name} stands for two kinds");
            assert!((400..600).contains(&http) && !title.is_empty(), "{kind:?}");
            assert!(
                resp.bytes().all(|b| b.is_ascii_uppercase()),
                "{kind:?}: a RESP prefix is one word in capitals"
            );
        }
    }

    fn clock_behind() -> GenerateError {
        let clock = ManualClock::at_unix_ms(1_700_000_000_000);
        let generator = Generator::builder(Layout::TWITTER).build(&clock).unwrap();
        generator.try_next_id().unwrap();
        clock.set_unix_ms(1_600_000_000_000);
        generator.try_next_id().unwrap_err()
    }

    /// Goal: what went wrong inside the keeper or the generator reaches both protocols under the right code.
    #[test]
    fn every_mint_error_goes_to_its_row() {
        let name = Snippet::of("x");
        let ms = NonZeroU64::MIN;
        let behind = clock_behind();
        let refused = |refusal| MintError::from_no_id(NoId::Refused(refusal), 1, 1);
        let id = "x".parse::<snowmint::Id>().unwrap_err();
        let layout = "x".parse::<Layout>().unwrap_err();
        let table: [(MintError, u16, &str); 19] = [
            (MintError::RunTooLong { count: 3, given: 1 }, 400, "ERR"),
            (MintError::WrongScheme { name, what: "" }, 400, "ERR"),
            (MintError::TooManyNamespaces { name, limit: 5 }, 403, "ERR"),
            (MintError::NotCounting { name, why: "" }, 400, "WRONGTYPE"),
            (MintError::NumbersEnded { name, maximum: 5 }, 500, "NUMBERSENDED"),
            (MintError::UnknownNamespace { name, known: String::new() }, 404, "NONAMESPACE"),
            (MintError::BadNamespace { name }, 400, "ERR"),
            (MintError::BadCount { value: name, limit: 1 }, 400, "ERR"),
            (MintError::BadId { text: name, why: id.into() }, 400, "ERR"),
            (MintError::NotOfNamespace { text: name, name, why: id.into() }, 400, "ERR"),
            (MintError::BadLayout { layout: name, why: layout.into() }, 400, "ERR"),
            (MintError::from_no_id(NoId::NoLease { why: "no store".into() }, 1, 1), 503, "NOTREADY"),
            (refused(GenerateError::LeaseEnded { until_unix_ms: 0 }), 503, "NOTREADY"),
            (refused(GenerateError::Ended), 503, "NOTREADY"),
            (refused(behind), 503, "CLOCKBEHIND"),
            (refused(GenerateError::NotBegun { from_unix_ms: 5, now_unix_ms: 1 }), 503, "CLOCKBEHIND"),
            (refused(GenerateError::Exhausted { retry_after_ms: ms }), 503, "TRYAGAIN"),
            (MintError::Busy { count: 1, ids_per_second: 1 }, 503, "TRYAGAIN"),
            (refused(GenerateError::TimestampOverflow { ended_unix_ms: 0 }), 500, "LAYOUTENDED"),
        ];
        for (error, http, resp) in table {
            let status = error.kind().status();
            assert_eq!((status.http, status.resp), (http, resp), "{error}");
            assert_eq!(error.retry_after().is_some(), http == 503, "{error}: 503 says when to come back");
        }
    }
}
