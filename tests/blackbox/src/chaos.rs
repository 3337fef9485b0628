//! What the chaos tests share: clients that draw, and nodes to which things are done meanwhile.
//! Which faults strike, how often, and what must come of them is each test's own.

mod client;
mod harvest;
mod node;

pub use client::{Drawn, Load, draw_while};
pub use harvest::Harvest;
pub use node::{AfterPause, CLOCK_SLACK_MS, Node, Offset};
