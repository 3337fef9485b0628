//! The layouts that are in use elsewhere, by name.
//! Widths, tick and epoch are those of each project's own source, cut to 63 bits where it uses 64.

use core::time::Duration;

use super::{Layout, LayoutBuilder};

/// A layout with a name.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Preset {
    /// What `--layout` takes.
    pub name: &'static str,
    /// The layout.
    pub layout: Layout,
    /// Where it comes from and what to know of it, in a line.
    pub about: &'static str,
}

const TWITTER_EPOCH: u64 = 1_288_834_974_657;

/// Evaluated when the crate is compiled: a preset that cannot be does not build.
const fn checked(builder: LayoutBuilder) -> Layout {
    match builder.build() {
        Ok(layout) => layout,
        Err(_) => panic!("a preset must be a layout that can be"),
    }
}

const fn preset(name: &'static str, layout: Layout, about: &'static str) -> Preset {
    Preset { name, layout, about }
}

impl Layout {
    /// Twitter's Snowflake of 2010: 41 bits of ms, 5 datacenter, 5 worker, 12 sequence.
    ///
    /// # Source
    ///
    /// twitter-archive/snowflake, `IdWorker.scala`.
    pub const TWITTER: Self = checked(
        Self::builder().timestamp(41).datacenter(5).worker(5).sequence(12).epoch_unix_ms(TWITTER_EPOCH),
    );
}

/// Every preset, in the order that `snowmint layouts` shows them.
pub const PRESETS: &[Preset] = &[
    preset("twitter", Layout::TWITTER, "Twitter Snowflake, 2010; X, and many ports of it"),
    preset(
        "discord",
        checked(
            Layout::builder()
                .timestamp(41)
                .datacenter(5)
                .worker(5)
                .sequence(12)
                .epoch_unix_ms(1_420_070_400_000),
        ),
        "Discord; its worker is our datacenter, its process our worker; 41 of its 42 bits of time",
    ),
    preset(
        "sonyflake",
        checked(
            Layout::builder()
                .timestamp(39)
                .sequence(8)
                .worker(16)
                .tick(Duration::from_millis(10))
                .epoch_unix_ms(1_409_529_600_000),
        ),
        "Sonyflake v1; the sequence lies above the worker",
    ),
    preset(
        "leaf",
        checked(Layout::builder().timestamp(41).worker(10).sequence(12).epoch_unix_ms(TWITTER_EPOCH)),
        "Meituan Leaf, bwmarrin/snowflake: one worker field of 10 bits",
    ),
    preset(
        "baidu",
        checked(
            Layout::builder()
                .timestamp(28)
                .worker(22)
                .sequence(13)
                .tick(Duration::from_secs(1))
                .epoch_unix_ms(1_463_673_600_000),
        ),
        "Baidu uid-generator's default; its time ran out on 2024-11-20: decoding only",
    ),
    preset(
        "instagram",
        checked(Layout::builder().timestamp(40).worker(13).sequence(10).epoch_unix_ms(1_314_220_021_721)),
        "Instagram's PL/pgSQL; its shard is our worker; 40 of its 41 bits of time",
    ),
    preset(
        "mastodon",
        checked(Layout::builder().timestamp(47).sequence(16).epoch_unix_ms(0)),
        "Mastodon; 47 of its 48 bits of time; its 16 low bits are partly random",
    ),
    preset(
        "yitter",
        checked(Layout::builder().timestamp(51).worker(6).sequence(6).epoch_unix_ms(1_582_136_402_000)),
        "Yitter IdGenerator's default: short ids, 64 workers, 64 ids a ms each",
    ),
    preset(
        "pod-ip",
        checked(
            Layout::builder()
                .timestamp(28)
                .worker(24)
                .sequence(11)
                .tick(Duration::from_secs(1))
                .epoch_unix_ms(1_631_780_048_000),
        ),
        "Kubernetes by address: the worker is the last three octets of the pod's IPv4; ends 2030-03-20",
    ),
    preset(
        "game",
        checked(
            Layout::builder()
                .timestamp(31)
                .worker(20)
                .sequence(12)
                .tick(Duration::from_secs(1))
                .epoch_unix_ms(1_704_067_200_000),
        ),
        "game servers: 1,048,576 workers for 68 years from 2024",
    ),
    preset(
        "js53",
        checked(Layout::builder().timestamp(41).worker(3).sequence(9).epoch_unix_ms(1_577_203_200_000)),
        "53 bits, exact as a number in JavaScript; CosId's JS-safe layout",
    ),
];
