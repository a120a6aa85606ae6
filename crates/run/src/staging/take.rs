//! Takes files that another helper of the run offers.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use isthmus_wire::preamble::Mac;

use super::keys::Keys;
use super::manifest::{BLOCK, Entry, FileEntry, Kind, MANIFEST_MAX, Manifest, apart};
use super::target::{self, Need, Part};
use super::task::Said;

/// What was taken.
pub(super) struct Taken {
    pub manifest: Manifest,
    /// How many files were written.
    pub written: u64,
    /// How many bytes were received for that.
    pub received: u64,
}

/// A file that is to be written.
struct Wanted<'a> {
    /// Index of its entry.
    index: usize,
    entry: &'a FileEntry,
    path: PathBuf,
    need: Need,
}

/// Takes what the helper at `from` offers of `paths`, and writes it to paths that end with `suffix`.
/// `told` gets how far it is.
///
/// # Errors
/// The helper can't be reached or sends something else, or a file can't be written. What was
/// received of a file stays for the next run.
pub(super) fn take(
    from: SocketAddrV4,
    (paths, suffix): (&[String], &str),
    keys: &Keys,
    told: &mut dyn FnMut(Said),
) -> anyhow::Result<Taken> {
    apart(&paths.iter().map(|path| format!("{path}{suffix}")).collect::<Vec<_>>())?;
    let mut stream =
        TcpStream::connect(from).with_context(|| format!("cannot connect to the helper at {from}"))?;
    stream.write_all(&keys.greeting)?;
    let manifest = manifest(&mut stream, keys).with_context(|| format!("no list of files from {from}"))?;
    manifest.check(paths).context("the list of files can't be used")?;
    if !suffix.is_empty() {
        make_way(&manifest, suffix, keys, told)?;
    }
    let umask = umask();
    let mut made = Vec::new();
    let mut wanted = Vec::new();
    let mut so_far = 0;
    let mut read = |bytes: u64| {
        so_far += bytes;
        told(Said::Read { bytes: so_far });
    };
    for (index, entry) in manifest.entries.iter().enumerate() {
        let path = manifest.path(entry, suffix);
        prepare(&manifest, entry, suffix)?;
        // Many may be empty, and take their time all the same.
        read(0);
        match &entry.kind {
            Kind::Directory { mode } => {
                let is_new = target::make_directory(&path, entry.below.is_empty())?;
                target::check_owner(&path)?;
                if is_new || target::open_directory(&path)? {
                    made.push((path, *mode));
                }
            }
            Kind::Link { target } => {
                target::make_link(&path, target)?;
                target::check_owner(&path)?;
            }
            Kind::File(file) => {
                let need = Need::find(&path, file, &keys.blocks, &mut read)?;
                target::check_owner(&path)?;
                match need {
                    Need::Nothing => target::mend_mode(&path, file.mode, umask)?,
                    need => wanted.push(Wanted { index, entry: file, path, need }),
                }
            }
        }
    }
    ask(&mut stream, &wanted)?;
    let (written, received) = receive(&mut stream, wanted, (keys, umask), told)?;
    // Last, as a directory may not be writable.
    for (path, mode) in made.into_iter().rev() {
        target::set_mode(&path, mode, umask)?;
    }
    Ok(Taken { manifest, written, received })
}

/// Moves aside what an earlier run has brought to the paths that end with `suffix`, unless it is the
/// same: else the two would be mixed.
fn make_way(
    manifest: &Manifest,
    suffix: &str,
    keys: &Keys,
    told: &mut dyn FnMut(Said),
) -> anyhow::Result<()> {
    for (index, root) in manifest.roots.iter().enumerate() {
        let there = vec![format!("{root}{suffix}")];
        let read = &mut |bytes| told(Said::Read { bytes });
        // What can't be listed is another thing.
        let known = Manifest::of(&there, true, &keys.blocks, read).ok();
        let is_same = known.is_some_and(|known| known.entries.is_empty() || manifest.is_same(index, &known));
        if !is_same && manifest.entries.iter().any(|entry| entry.root == index) {
            target::move_aside(Path::new(&there[0]))?;
        }
    }
    Ok(())
}

/// Makes sure that an entry may be written.
fn prepare(manifest: &Manifest, entry: &Entry, suffix: &str) -> anyhow::Result<()> {
    let root = manifest.root(entry, suffix);
    if entry.below.is_empty() { target::make_parents(&root) } else { target::check_way(&root, &entry.below) }
}

fn manifest(stream: &mut TcpStream, keys: &Keys) -> anyhow::Result<Manifest> {
    let mut len = [0; 8];
    stream.read_exact(&mut len)?;
    let len = usize::try_from(u64::from_be_bytes(len)).unwrap_or(usize::MAX);
    ensure!(len <= MANIFEST_MAX, "it has {len} bytes");
    let mut encoded = vec![0; len];
    stream.read_exact(&mut encoded)?;
    let mut digest = Mac::default();
    stream.read_exact(&mut digest)?;
    ensure!(keys.manifest.verify(&encoded, &digest), "it is of no helper of this run");
    Ok(serde_json::from_slice(&encoded)?)
}

/// Asks for the blocks that lack.
fn ask(stream: &mut TcpStream, wanted: &[Wanted<'_>]) -> anyhow::Result<()> {
    let mut request = u32::try_from(wanted.len())?.to_be_bytes().to_vec();
    for Wanted { index, need, .. } in wanted {
        request.extend(u32::try_from(*index)?.to_be_bytes());
        request.extend(u32::try_from(need.blocks())?.to_be_bytes());
    }
    stream.write_all(&request).context("the connection broke")
}

/// Receives what was asked for. Returns how many files were written, and their bytes.
fn receive(
    stream: &mut TcpStream,
    wanted: Vec<Wanted<'_>>,
    (keys, umask): (&Keys, u32),
    told: &mut dyn FnMut(Said),
) -> anyhow::Result<(u64, u64)> {
    let lacking = |one: &Wanted<'_>| one.entry.bytes.saturating_sub((one.need.blocks() * BLOCK) as u64);
    let of = wanted.iter().map(lacking).fold(0, u64::saturating_add);
    let (mut written, mut received) = (0, 0);
    told(Said::Taken { bytes: received, of });
    let mut buffer = Vec::new();
    for Wanted { entry, path, need, .. } in wanted {
        let first = need.blocks();
        let mut part = match need {
            Need::Rest(part) => part,
            Need::All | Need::Nothing => Part::new(&path)?,
        };
        for (index, mac) in entry.blocks.iter().enumerate().skip(first) {
            buffer.resize(entry.block_len(index), 0);
            stream.read_exact(&mut buffer).context("the connection broke")?;
            ensure!(keys.blocks.verify(&buffer, mac), "{} has changed while it was staged", path.display());
            part.write(&buffer)?;
            received += buffer.len() as u64;
            told(Said::Taken { bytes: received, of });
        }
        part.finish(&path, entry.mode, umask)?;
        written += 1;
    }
    Ok((written, received))
}

/// The permission bits that the process withholds. Linux has no call that only tells them.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o022)
}
