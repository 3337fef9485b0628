//! Makes `mod sync` in `crates/snowmint/src/lib.rs` use loom's atomics instead of core's.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=snowmint_loom");
}
