//! The closure of a history of dependencies: `dbsppeer CHANGES` runs one transaction a version, with one worker, and
//! prints what it cost and what it changed.
//!
//! The file has (version, package, dependency, diff) as little-endian i64, by version. Reading it and printing are not
//! timed. The loop is written as in the crate's own examples and benchmarks, with the allocator that those have.

use std::time::Instant;

use anyhow::Context;
use dbsp::mimalloc::MiMalloc;
use dbsp::typed_batch::IndexedZSetReader;
use dbsp::utils::Tup2;
use dbsp::{OrdZSet, Runtime, Stream, ZWeight};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const WORKERS: usize = 1;

/// A package, and one that it needs.
type Pair = Tup2<i64, i64>;

/// A version, and the pairs that come and go in it.
type Version = (i64, Vec<Tup2<Pair, ZWeight>>);

fn versions(path: &str) -> anyhow::Result<Vec<Version>> {
    let bytes = std::fs::read(path).with_context(|| path.to_owned())?;
    let words: Vec<i64> = bytes
        .chunks_exact(8)
        .map(|word| i64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let rows = words.chunks_exact(4).collect::<Vec<_>>();
    let by_version = rows.chunk_by(|row, next| row[0] == next[0]);
    let pairs = |rows: &[&[i64]]| {
        rows.iter()
            .map(|row| Tup2(Tup2(row[1], row[2]), row[3]))
            .collect()
    };
    Ok(by_version.map(|rows| (rows[0][0], pairs(rows))).collect())
}

/// Processor seconds of all threads of this process, user and system.
fn processor_seconds() -> f64 {
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// The most memory that this process has had.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.map_or(f64::NAN, |kib| kib / 1024.0)
}

fn main() -> anyhow::Result<()> {
    let path = std::env::args().nth(1).context("usage: dbsppeer CHANGES")?;
    let versions = versions(&path)?;
    let (start, spent) = (Instant::now(), processor_seconds());
    let (mut circuit, (input, output)) = Runtime::init_circuit(WORKERS, |root| {
        let (dependencies, input) = root.add_input_zset::<Pair>();
        let direct = dependencies.distinct();
        // The loop makes its result distinct by itself.
        let closure = root.recursive(|child, depends: Stream<_, OrdZSet<Pair>>| {
            let direct = direct.delta0(child);
            let by_dependency =
                direct.map_index(|Tup2(package, dependency)| (*dependency, *package));
            let by_package = depends.map_index(|Tup2(package, dependency)| (*package, *dependency));
            let further = by_dependency.join(&by_package, |_, package, dependency| {
                Tup2(*package, *dependency)
            });
            Ok(further.plus(&direct))
        })?;
        Ok((input, closure.accumulate_output()))
    })?;
    let mut changes = Vec::new();
    for (version, mut pairs) in versions {
        input.append(&mut pairs);
        circuit.transaction()?;
        let differences = output.concat().consolidate();
        changes.extend(
            differences
                .iter()
                .map(|(pair, _, diff)| (pair, version, diff)),
        );
    }
    let (seconds, processor) = (start.elapsed().as_secs_f64(), processor_seconds() - spent);
    println!("s={seconds}\ncpu_s={processor}\npeak_mib={}", peak_mib());
    for (Tup2(package, dependency), version, diff) in changes {
        println!("{package} {dependency} {version} {diff}");
    }
    Ok(())
}
