//! The Redis protocol, RESP2 and RESP3: bytes to commands, commands to the mint, replies to bytes.
//! Everything but the connection itself is plain functions over buffers.

pub mod codec;
mod command;
mod connection;
mod info;
mod inline;
mod reply;
mod session;
mod table;
mod tally;
mod transaction;

pub(crate) use connection::serve;
