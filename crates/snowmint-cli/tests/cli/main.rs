//! The built command from outside: its arguments, its output, its exit codes. Links none of the code it tests.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod help;
mod import;
mod inspect;
mod layout;
mod new;
mod ns;
mod recover;
mod run;
mod serve;
mod stores;
mod workers;
