//! Makes, prints, parses and explains an id: `cargo run --example first_id`.

#![allow(clippy::print_stdout, reason = "an example prints")]

use snowmint::{Generator, Id, Layout, WallClock, WorkerId, utc::Utc};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let layout = Layout::TWITTER;
    let generator = Generator::builder(layout).worker(WorkerId(7)).build(WallClock)?;
    let text = generator.next_id()?.to_string();
    println!("made:     {text}");
    let id: Id = text.parse()?;
    let parts = layout.split(id)?;
    println!("time:     {}", Utc::from(layout.time_of(id)?));
    println!("worker:   {}", parts.worker);
    println!("sequence: {}", parts.sequence);
    Ok(())
}
