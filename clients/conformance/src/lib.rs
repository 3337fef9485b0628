//! The conformance kit of Snowmint's clients: it plays the servers, drives a client through a small program (the *driver*), and
//! compares what comes out with scenarios. `README.md` describes the protocol of drivers, `../SPEC.md` the rules.

pub mod application;
pub mod black_box;
pub mod driver;
mod expectations;
pub mod run;
pub mod scenario;
mod server;
