//! The znode `,fence` beside the records: a write to it makes later reads current, and its creation
//! identifies the ensemble.

use std::fmt;

use zookeeper_client::{Client, CreateOptions, Error, Stat};

/// The znode whose writes make later reads of the same session current. They also return the leader's time.
#[derive(Clone)]
pub(super) struct Fence {
    pub(super) base: String,
    pub(super) path: String,
    pub(super) options: CreateOptions<'static>,
}

impl Fence {
    pub(super) async fn pass(&self, client: &Client) -> Result<Stat, Error> {
        match client.set_data(&self.path, b"", None).await {
            Err(Error::NoNode) => self.create(client).await?,
            passed => return passed,
        }
        client.set_data(&self.path, b"", None).await
    }

    /// Creates it and its missing parents; other nodes may do the same at the same instant.
    async fn create(&self, client: &Client) -> Result<(), Error> {
        let mut created = client.create(&self.path, b"", &self.options).await;
        if created == Err(Error::NoNode) {
            client.mkdir(&self.base, &self.options).await?;
            created = client.create(&self.path, b"", &self.options).await;
        }
        match created {
            Ok(_) | Err(Error::NodeExists) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Where and when a fence was created. No two ensembles have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EnsembleOrigin {
    transaction: i64,
    unix_ms: i64,
}

impl EnsembleOrigin {
    pub(super) const fn of(fence: &Stat) -> Self {
        Self { transaction: fence.czxid, unix_ms: fence.ctime }
    }
}

impl fmt::Display for EnsembleOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "created by transaction {} at {} ms", self.transaction, self.unix_ms)
    }
}
