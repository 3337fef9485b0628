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
                session.create_with_parents(&self.path, self.owner).await?;
                session.set_data(&self.path, b"", ANY_VERSION).await
            }
            passed => passed,
        }
    }
}
