//! Ids in threads, without `async`. Start `snowmint serve` first.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::thread;

use snowmint_client::{Client, ClientError};

/// The default address of `snowmint serve`. `SNOWMINT_SERVERS` overrides it with a comma-separated list.
const SERVERS: &str = "http://127.0.0.1:8080";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers = std::env::var("SNOWMINT_SERVERS").unwrap_or_else(|_| SERVERS.to_owned());
    let client = Client::builder().servers(servers.split(',')).build()?;
    let ids = client.namespace("default")?;

    let threads: Vec<_> = (0..4)
        .map(|_| {
            let ids = ids.clone();
            thread::spawn(move || {
                (0..1000).map(|_| ids.blocking_next_id()).collect::<Result<Vec<_>, ClientError>>()
            })
        })
        .collect();
    for thread in threads {
        let drawn = thread.join().map_err(|_| "a thread panicked")??;
        println!("{} ids, from {} to {}", drawn.len(), drawn[0], drawn[drawn.len() - 1]);
    }
    println!("{:?}", client.stats());
    Ok(())
}
