//! Makes `crates/snowmint/src/sync.rs` take loom's atomics in place of core's.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=snowmint_loom");
}
