//! The znode `,fence` beside the records: a write to it makes later reads current.

use super::ANY_VERSION;
use super::error::ZooKeeperFailure;
use super::session::Session;
use super::wire::{ErrorCode, Owner, Stat};

/// The znode whose writes make later reads of the same session current. They also return the leader's time.
#[derive(Clone)]
pub(super) struct Fence {
    pub(super) path: String,
    pub(super) owner: Owner,
}

impl Fence {
    pub(super) async fn pass(&self, session: &Session) -> Result<Stat, ZooKeeperFailure> {
        match session.set_data(&self.path, b"", ANY_VERSION).await {
            Err(ZooKeeperFailure::Refused(ErrorCode::NoNode)) => {
                create_with_parents(session, &self.path, self.owner).await?;
                session.set_data(&self.path, b"", ANY_VERSION).await
            }
            passed => passed,
        }
    }
}

/// Creates an empty znode and its missing parents; other nodes may do the same at the same instant.
pub(super) async fn create_with_parents(
    session: &Session,
    path: &str,
    owner: Owner,
) -> Result<(), ZooKeeperFailure> {
    let mut missing = vec![path];
    // From the deepest one on: a user may have no rights above the path.
    while let Some(path) = missing.last() {
        match session.create(path, b"", owner).await {
            Ok(_) | Err(ZooKeeperFailure::Refused(ErrorCode::NodeExists)) => {
                missing.pop();
            }
            Err(failure @ ZooKeeperFailure::Refused(ErrorCode::NoNode)) => match path.rsplit_once('/') {
                Some((parent, _)) if !parent.is_empty() => missing.push(parent),
                _ => return Err(failure),
            },
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}
