//! Generates Rust code from the `.proto` of etcd if that store is built.
//! The compiler is `protox`, written in Rust, so that no `protoc` must be installed.

#[allow(clippy::unnecessary_wraps, reason = "nothing can fail in a build without etcd")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/etcd.proto");
    #[cfg(feature = "etcd")]
    {
        let files = protox::compile(["proto/etcd.proto"], ["proto"])?;
        tonic_prost_build::configure().build_server(false).compile_fds(files)?;
    }
    Ok(())
}
