//! Whether a member of a MySQL group is its primary, and can still write.
//!
//! A primary that loses the majority of its group stays writable by its settings: its own commits wait, and
//! the other members elect another primary. A server outside of its group commits without it.

use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::MySqlSettings;
use crate::StoreErrorKind;
use crate::net::HostRefusal;
use crate::sql::failure::{refusal, server_error};

/// The server's view of its group: whether a row is the server itself, its state and its role.
const MEMBERS: &str = "SELECT CAST(member_id = @@server_uuid AS SIGNED), CAST(member_state AS CHAR), \
    CAST(member_role AS CHAR) FROM performance_schema.replication_group_members";
const GRANT: &str = "the server has group_replication_group_name set, and the user may not see whether it is the primary of that \
    group: GRANT SELECT ON performance_schema.replication_group_members TO the user of the nodes";
/// The server has no right to a table, or to a column of it.
const NOT_GRANTED: [u16; 2] = [1142, 1143];

struct Member {
    is_self: bool,
    state: String,
    role: String,
}

/// Refuses a server that is not the primary of its group, or whose group has no majority.
pub(super) async fn check(sql: &mut MySqlConnection) -> Result<(), HostRefusal> {
    let rows = sqlx::query(MEMBERS).fetch_all(sql).await;
    let members = rows.and_then(|rows| {
        let member = |row: &MySqlRow| {
            let is_self = row.try_get_unchecked::<i64, _>(0)? != 0;
            Ok(Member { is_self, state: row.try_get_unchecked(1)?, role: row.try_get_unchecked(2)? })
        };
        rows.iter().map(member).collect::<Result<Vec<_>, sqlx::Error>>()
    });
    let members = members.map_err(|error| match server_error::<MySqlSettings>(&error) {
        Some(said) if NOT_GRANTED.contains(&said.number()) => HostRefusal::new(StoreErrorKind::Other, GRANT),
        _ => refusal::<MySqlSettings>(&error),
    })?;
    match fault(&members) {
        Some(text) => Err(HostRefusal::new(StoreErrorKind::Unavailable, text)),
        None => Ok(()),
    }
}

/// Returns why a server with this view of its group must not be used.
fn fault(members: &[Member]) -> Option<String> {
    let own = members.iter().find(|it| it.is_self);
    let (state, role) = own.map_or(("", ""), |it| (&it.state, &it.role));
    if (state, role) != ("ONLINE", "PRIMARY") {
        return Some(format!(
            "the server has group_replication_group_name set and is not the primary of that group (member_state \
             '{state}', member_role '{role}'): let it join the group with START GROUP_REPLICATION; if it is to serve \
             without the group, remove the setting"
        ));
    }
    // Members that recover take part in votes.
    let reached = members.iter().filter(|it| it.state != "UNREACHABLE").count();
    (2 * reached <= members.len()).then(|| {
        format!(
            "the server reaches {reached} of {} members of its group, which is no majority: the others may have elected \
             another primary; mend the network between them, or follow MySQL's manual on the loss of a majority",
            members.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_primary_with_a_majority_is_used() {
        let fault = |own: (&str, &str), others: &[&str]| {
            let member = |is_self, (state, role): (&str, &str)| Member {
                is_self,
                state: state.to_owned(),
                role: role.to_owned(),
            };
            let others = others.iter().map(|state| member(false, (state, "SECONDARY")));
            fault(&[member(true, own)].into_iter().chain(others).collect::<Vec<_>>())
        };
        let primary = ("ONLINE", "PRIMARY");
        for others in
            [&[][..], &["ONLINE", "ONLINE"], &["ONLINE", "UNREACHABLE"], &["RECOVERING", "RECOVERING"]]
        {
            assert_eq!(fault(primary, others), None, "{others:?}");
        }
        for others in
            [&["UNREACHABLE"][..], &["UNREACHABLE", "UNREACHABLE"], &["ONLINE", "UNREACHABLE", "UNREACHABLE"]]
        {
            assert!(fault(primary, others).unwrap().contains("no majority"), "{others:?}");
        }
        for own in [("OFFLINE", ""), ("ERROR", ""), ("RECOVERING", "PRIMARY"), ("ONLINE", "SECONDARY")] {
            assert!(fault(own, &["ONLINE", "ONLINE"]).unwrap().contains(own.0), "{own:?}");
        }
        assert!(super::fault(&[]).unwrap().contains("START GROUP_REPLICATION"));
    }
}
