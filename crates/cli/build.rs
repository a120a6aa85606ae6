//! Puts the identity of the sources into the binary (`isthmus --version`).

use std::path::Path;

mod source_id;

fn main() -> std::io::Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for path in source_id::parts(&workspace)? {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    println!("cargo:rustc-env=ISTHMUS_SOURCE_ID={}", source_id::of(&workspace)?);
    Ok(())
}
