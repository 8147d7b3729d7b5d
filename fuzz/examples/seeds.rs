//! Writes what each target begins with to `corpus/<target>/`.

use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (target, _, seeds) in tower_singleflight::fuzzing::targets() {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        for (n, seed) in seeds.iter().enumerate() {
            fs::write(folder.join(format!("seed-{n}")), seed)?;
        }
    }
    Ok(())
}
