//! Opens the store, and says whether a failure lies in the settings or in the world.

use std::sync::Arc;

use snowmint_store::{OpenError, Store};

use crate::exit::Failure;

/// Opens the store of a URL.
pub(crate) async fn open(url: &str) -> Result<Arc<dyn Store>, Failure> {
    snowmint_store::open(url).await.map_err(failure)
}

/// Opens the store of a URL to look at it, also where it cannot be written.
pub(crate) async fn open_to_read(url: &str) -> Result<Arc<dyn Store>, Failure> {
    snowmint_store::open_to_read(url).await.map_err(failure)
}

/// A URL that names no store is a mistake in the settings; a store that cannot be opened is the world's fault.
pub(crate) fn failure(error: OpenError) -> Failure {
    match error {
        OpenError::Url(error) => Failure::flag("--store", error),
        error => Failure::runtime(error),
    }
}
