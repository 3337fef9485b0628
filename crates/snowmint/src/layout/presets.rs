//! The layouts of other systems, by name.
//! Widths, tick and epoch are those of each project's source, cut to 63 bits if it uses 64.

use core::time::Duration;

use super::{Layout, LayoutBuilder};

/// A layout with a name.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Preset {
    /// Its name, which `--layout` accepts.
    pub name: &'static str,
    /// The layout.
    pub layout: Layout,
    /// Its origin and what to know about it, in one line.
    pub about: &'static str,
    /// The source of its widths, tick and epoch: the project and the file or page.
    pub source: &'static str,
}

const TWITTER_EPOCH: u64 = 1_288_834_974_657;
/// 2015-01-01T00:00:00Z.
const DISCORD_EPOCH: u64 = 1_420_070_400_000;
/// 2019-12-24T16:00:00Z.
const COSID_EPOCH: u64 = 1_577_203_200_000;
const SECOND: Duration = Duration::from_secs(1);
const TEN_MS: Duration = Duration::from_millis(10);

/// Evaluated at compile time: an invalid preset does not compile.
const fn checked(builder: LayoutBuilder) -> Layout {
    match builder.build() {
        Ok(layout) => layout,
        Err(_) => panic!("a preset must be a valid layout"),
    }
}

const fn preset(
    name: &'static str,
    builder: LayoutBuilder,
    about: &'static str,
    source: &'static str,
) -> Preset {
    Preset { name, layout: checked(builder), about, source }
}

/// Starts with a timestamp of milliseconds on top.
const fn of_ms(bits: u32, epoch_unix_ms: u64) -> LayoutBuilder {
    Layout::builder().epoch_unix_ms(epoch_unix_ms).timestamp(bits)
}

/// Starts with a timestamp of longer ticks on top.
const fn of_ticks(bits: u32, tick: Duration, epoch_unix_ms: u64) -> LayoutBuilder {
    of_ms(bits, epoch_unix_ms).tick(tick)
}

impl Layout {
    /// Twitter's Snowflake of 2010: 41 bits of ms, 5 datacenter, 5 worker, 12 sequence.
    ///
    /// # Source
    ///
    /// twitter-archive/snowflake, `IdWorker.scala`.
    pub const TWITTER: Self = checked(of_ms(41, TWITTER_EPOCH).datacenter(5).worker(5).sequence(12));
}

/// All presets, in the order in which `snowmint layouts` lists them.
pub const PRESETS: &[Preset] = &[
    preset(
        "twitter",
        of_ms(41, TWITTER_EPOCH).datacenter(5).worker(5).sequence(12),
        "Twitter Snowflake, 2010; X, and many ports of it",
        "twitter-archive/snowflake, IdWorker.scala",
    ),
    preset(
        "discord",
        of_ms(41, DISCORD_EPOCH).datacenter(5).worker(5).sequence(12),
        "Discord; its worker is our datacenter, its process our worker; 41 of its 42 bits of time",
        "discord-api-docs, Reference.md",
    ),
    preset(
        "sonyflake",
        of_ticks(39, TEN_MS, 1_409_529_600_000).sequence(8).worker(16),
        "Sonyflake v1; the sequence lies above the worker",
        "sony/sonyflake, sonyflake.go",
    ),
    preset(
        "leaf",
        of_ms(41, TWITTER_EPOCH).worker(10).sequence(12),
        "Meituan Leaf, bwmarrin/snowflake: one worker field of 10 bits",
        "Meituan-Dianping/Leaf, SnowflakeIDGenImpl.java",
    ),
    preset(
        "baidu",
        of_ticks(28, SECOND, 1_463_673_600_000).worker(22).sequence(13),
        "Baidu uid-generator's default; its time ran out on 2024-11-20: decoding only",
        "baidu/uid-generator, DefaultUidGenerator.java",
    ),
    preset(
        "instagram",
        of_ms(40, 1_314_220_021_721).worker(13).sequence(10),
        "Instagram's PL/pgSQL; its shard is our worker; 40 of its 41 bits of time",
        "Instagram Engineering, \"Sharding & IDs at Instagram\"",
    ),
    preset(
        "mastodon",
        of_ms(47, 0).sequence(16),
        "Mastodon; 47 of its 48 bits of time; its 16 low bits are partly random",
        "mastodon/mastodon, lib/mastodon/snowflake.rb",
    ),
    preset(
        "yitter",
        of_ms(51, 1_582_136_402_000).worker(6).sequence(6),
        "Yitter IdGenerator's default in Go, Java, Rust, Python, C, PHP: short ids, 64 workers",
        "yitter/IdGenerator, Go/source/idgen/IdGeneratorOptions.go",
    ),
    preset(
        "yitter-csharp",
        of_ms(51, 1_582_165_202_020).worker(6).sequence(6),
        "Yitter IdGenerator's default in C#: yitter with an epoch 8 hours later",
        "yitter/IdGenerator, C#.NET/source/Yitter.IdGenerator/Contract/IdGeneratorOptions.cs",
    ),
    preset(
        "yitter-typescript",
        of_ms(51, 1_577_836_800_000).worker(6).sequence(6),
        "Yitter IdGenerator's default in TypeScript: yitter with an epoch of 2020-01-01",
        "yitter/IdGenerator, TypeScript/snowflakeIdv1.ts",
    ),
    preset(
        "pod-ip",
        of_ticks(28, SECOND, 1_631_780_048_000).worker(24).sequence(11),
        "Kubernetes by address: the worker is the last three octets of the pod's IPv4; ends 2030-03-20",
        "articles on ids without middleware in Kubernetes; no project",
    ),
    preset(
        "game",
        of_ticks(31, SECOND, 1_704_067_200_000).worker(20).sequence(12),
        "game servers: 1,048,576 workers for 68 years from 2024",
        "ours, in place of the published 37/20/16, which needs 73 bits",
    ),
    preset(
        "js53",
        of_ms(41, COSID_EPOCH).worker(3).sequence(9),
        "53 bits, exact as a number in JavaScript; CosId's JS-safe layout",
        "Ahoo-Wang/CosId, SafeJavaScriptSnowflakeId.java",
    ),
    preset(
        "js53-second",
        of_ticks(31, SECOND, COSID_EPOCH).worker(3).sequence(19),
        "53 bits, exact in JavaScript; CosId's JS-safe layout of seconds",
        "Ahoo-Wang/CosId, SafeJavaScriptSnowflakeId.java",
    ),
    preset(
        "cosid",
        of_ms(41, COSID_EPOCH).worker(10).sequence(12),
        "CosId's default: leaf with an epoch of 2019-12-24",
        "Ahoo-Wang/CosId, MillisecondSnowflakeId.java",
    ),
    preset(
        "cosid-second",
        of_ticks(31, SECOND, COSID_EPOCH).worker(10).sequence(22),
        "CosId by the second: 4,194,304 ids in any second",
        "Ahoo-Wang/CosId, SecondSnowflakeId.java",
    ),
    preset(
        "sonyflake2",
        of_ticks(39, TEN_MS, 1_735_689_600_000).sequence(8).worker(16),
        "Sonyflake v2's default: v1 with an epoch of 2025",
        "sony/sonyflake, v2/sonyflake.go",
    ),
    preset(
        "baidu-sample",
        of_ticks(29, SECOND, 1_474_300_800_000).worker(21).sequence(13),
        "the sample configuration of Baidu's README, which many copied; ends 2033-09-24",
        "baidu/uid-generator, README",
    ),
    preset(
        "seata",
        Layout::builder().epoch_unix_ms(1_588_435_200_000).worker(10).timestamp(41).sequence(12),
        "Apache Seata: the worker is on top, so that ids of two workers do not sort by time",
        "incubator-seata, IdWorker.java",
    ),
    preset(
        "shardingsphere",
        of_ms(41, 1_477_958_400_000).worker(10).sequence(12),
        "Apache ShardingSphere in UTC; its epoch is 2016-11-01 in the zone of the JVM",
        "apache/shardingsphere, SnowflakeKeyGenerateAlgorithm.java",
    ),
    preset(
        "tsid",
        of_ms(41, 1_577_836_800_000).worker(10).sequence(12),
        "TSID with 1024 nodes, its default; its node is our worker; 41 of its 42 bits of time",
        "f4b6a3/tsid-creator, TsidFactory.java",
    ),
    preset(
        "icicle",
        of_ms(41, 1_455_788_600_316).worker(10).sequence(12),
        "icicle, ids by a script in Redis; its shard is our worker",
        "intenthq/icicle, id-generation.lua",
    ),
    preset(
        "mesh",
        of_ms(41, 1_577_808_000_000).datacenter(5).worker(5).sequence(12),
        "framework-mesh's JSnowflake: twitter with an epoch of 2020 in China",
        "zjcscut/framework-mesh, JSnowflake.java",
    ),
    preset(
        "ferroid-instagram",
        of_ms(40, 1_293_840_000_000).worker(13).sequence(10),
        "ferroid's Instagram type, whose epoch is not Instagram's; 40 of its 41 bits of time",
        "s0l0ist/ferroid, define_snowflake_id!",
    ),
    preset(
        "scru64",
        of_ticks(39, Duration::from_millis(256), 0).sequence(24),
        "SCRU64; its node and counter share the 24 low bits; as text base36 of 12 digits",
        "scru64/spec",
    ),
    preset(
        "linkedin",
        of_ms(41, 0).sequence(22),
        "LinkedIn posts, comments and messages; its 22 low bits are undocumented",
        "Ollie-Boyd/Linkedin-post-timestamp-extractor, README",
    ),
    preset(
        "tiktok",
        of_ticks(31, SECOND, 0).sequence(24).worker(8),
        "TikTok and Douyin; the top 10 bits of the sequence are milliseconds, its low 6 the type; the worker is a machine",
        "Steel et al., \"Just Another Hour on TikTok\", arXiv:2504.13279",
    ),
    preset(
        "pgedge",
        of_ms(41, 1_672_531_200_000).sequence(12).worker(10),
        "pgEdge's snowflake sequences for PostgreSQL; the node is our worker, below the sequence",
        "pgEdge/snowflake, README",
    ),
    preset(
        "hazelcast",
        of_ms(41, 1_514_764_800_000).sequence(6).worker(16),
        "Hazelcast's FlakeIdGenerator by default; the node is our worker, below the sequence",
        "hazelcast/hazelcast, FlakeIdGenerator.java",
    ),
    preset(
        "clickhouse",
        of_ms(41, 0).worker(10).sequence(12),
        "ClickHouse's generateSnowflakeID; its machine id is our worker, a hash of the server",
        "ClickHouse/ClickHouse, generateSnowflakeID.cpp",
    ),
];
