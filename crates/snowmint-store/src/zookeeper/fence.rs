//! The write before every read: what passes a quorum makes the reads after it on the same session up to date.
//! It also tells the time of the leader.

use zookeeper_client::{Client, CreateOptions, Error, Stat};

/// The znode whose writes make the reads after them, on the same session, up to date.
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

    /// Creates it, and with it what is missing above; others may do the same at the same instant.
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
