//! Generates the gRPC services from `proto/` when the `grpc` feature is on.
#![allow(clippy::disallowed_methods, reason = "it runs while the crate is compiled")]

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/isthmus.proto");
    #[cfg(feature = "grpc")]
    tonic_prost_build::configure()
        .file_descriptor_set_path(format!("{}/isthmus.descriptors", std::env::var("OUT_DIR")?))
        .compile_protos(&["proto/isthmus.proto"], &["proto"])?;
    Ok(())
}
