//! What unit tests share: the source without a store of the integration tests, and a server around it.
//! Compiled for tests only.

use std::sync::Arc;

use snowmint::ManualClock;

pub(crate) use crate::testing_source::*;

use crate::mint::Mint;
use crate::server::Server;
use crate::settings::Settings;

pub(crate) fn server() -> Server {
    server_of(mint())
}

pub(crate) fn server_of(mint: Mint) -> Server {
    let settings =
        Settings { clock: Arc::new(ManualClock::at_unix_ms(START_UNIX_MS)), ..Settings::default() };
    Server::new(Arc::new(mint), &settings)
}
