//! A program without std. Its own panic handler does not build if any dependency links std.
//! It makes an id with a clock that it supplies itself.

#![no_std]

use core::panic::PanicInfo;

use snowmint::{Clock, Generator, Layout, WorkerId};

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}

struct Uptime;

impl Clock for Uptime {
    fn unix_ms(&self) -> u64 {
        1_700_000_000_000
    }
}

/// Makes one id; returns 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn snowmint_one_id() -> u64 {
    let generator = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build(Uptime);
    generator.ok().and_then(|generator| generator.try_next_id().ok()).map_or(0, |id| id.get())
}
