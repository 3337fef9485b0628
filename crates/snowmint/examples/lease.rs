//! Limits a generator to the timestamps of a lease: `cargo run --example lease`.
//!
//! A store grants leases; the crate `snowmint-cluster` takes and renews them. Here a manual clock shows what
//! happens at the end of one.

#![allow(clippy::print_stdout, reason = "an example prints")]

use snowmint::{GenerateError, Generator, Layout, Lease, ManualClock, WorkerId};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let from_unix_ms = 1_767_225_600_000; // 2026-01-01
    let lease = Lease { worker: WorkerId(7), from_unix_ms, until_unix_ms: from_unix_ms + 10_000 };
    let clock = ManualClock::at_unix_ms(from_unix_ms);
    let generator = Generator::builder(Layout::TWITTER).lease(lease).build(&clock)?;
    println!("within the lease:  {}", generator.try_next_id()?);

    clock.advance_ms(10_000);
    match generator.try_next_id() {
        Err(error @ GenerateError::LeaseEnded { .. }) => println!("after its end:     {error}"),
        other => return Err(format!("expected the end of the lease, found {other:?}").into()),
    }

    generator.extend_lease(from_unix_ms + 20_000);
    println!("after the renewal: {}", generator.try_next_id()?);
    Ok(())
}
