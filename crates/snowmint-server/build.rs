//! Compiles the `.proto` file of the gRPC interface to Rust, and to a descriptor set for reflection. The
//! compiler is `protox`, a Rust library, so `protoc` need not be installed.

use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).include_imports(true).open_files(["snowmint/v1/snowmint.proto"])?;
    let out = env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    fs::write(Path::new(&out).join("snowmint.v1.bin"), compiler.encode_file_descriptor_set())?;
    // `src/grpc` implements the service, so only the messages are generated.
    let messages = tonic_prost_build::configure().build_client(false).build_server(false);
    messages.compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
