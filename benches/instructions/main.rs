//! `cargo bench --bench instructions`: how many instructions the hot paths take. Valgrind counts
//! them, so that the figures do not depend on how busy the machine is, and a change of the code
//! shows as a change of a figure.
//!
//! What was counted last is kept in `kept.txt`, beside this file; `UPDATE_INSTRUCTIONS=1` writes it
//! anew. A path that takes [`TOO_MUCH`] more than that is an error.

mod work;

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use work::{WORK, Work};

type Failure = Box<dyn Error + Send + Sync>;

/// The share by which a figure may grow without being looked at. Other processors have other ways
/// to copy and to compare bytes.
const TOO_MUCH: f64 = 0.05;
/// The work is done this many times, and this many times more; what is done once falls out.
const FEW: u64 = 20;
const MANY: u64 = 220;

#[expect(clippy::print_stdout, reason = "the table is what this is for")]
fn main() -> Result<(), Failure> {
    let args: Vec<String> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [flag, name, times] = &args[..]
        && flag == "--work"
    {
        let work = WORK.iter().find(|work| work.name == name).ok_or("there is no such work")?;
        (work.run)(times.parse()?);
        return Ok(());
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("valgrind is not installed, so nothing is counted: apt-get install valgrind");
        return Ok(());
    }
    let kept = kept()?;
    let wanted = |work: &&Work| args.is_empty() || args.iter().any(|name| name == work.name);
    let (mut found, mut worse) = (BTreeMap::new(), Vec::new());
    println!("{:<16} {:>14} {:>14} {:>8}  of", "work", "kept", "now", "change");
    for work in WORK.iter().filter(wanted) {
        let now = instructions(work)?;
        found.insert(work.name, now);
        let Some(&before) = kept.get(work.name) else {
            println!("{:<16} {:>14} {now:>14} {:>8}  {}", work.name, "-", "new", work.of);
            continue;
        };
        let change = now as f64 / before as f64 - 1.0;
        let percent = format!("{:+.1}%", change * 100.0);
        println!("{:<16} {before:>14} {now:>14} {percent:>8}  {}", work.name, work.of);
        if change > TOO_MUCH {
            worse.push(work.name);
        }
    }
    if env::var_os("UPDATE_INSTRUCTIONS").is_some() {
        let mut all: BTreeMap<&str, u64> = kept.iter().map(|(name, n)| (&**name, *n)).collect();
        all.extend(found);
        all.retain(|name, _| WORK.iter().any(|work| work.name == *name));
        let lines: Vec<String> =
            all.iter().map(|(name, count)| format!("{name} {count}\n")).collect();
        fs::write(path(), lines.concat())?;
        return Ok(());
    }
    match worse.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "more than {:.0} % above what is kept: {}. Find out why, or take the new figures with \
             UPDATE_INSTRUCTIONS=1",
            TOO_MUCH * 100.0,
            worse.join(", ")
        )
        .into()),
    }
}

/// What the work takes once.
fn instructions(work: &Work) -> Result<u64, Failure> {
    let (few, many) = (counted(work.name, FEW)?, counted(work.name, MANY)?);
    Ok(many.saturating_sub(few) / (MANY - FEW))
}

/// What a whole process takes that does the work so many times.
fn counted(name: &str, times: u64) -> Result<u64, Failure> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe()?)
        .args(["--work", name, &times.to_string()])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count = said.lines().find_map(|line| line.split_once("Collected :"));
    match count.filter(|_| output.status.success()) {
        Some((_, count)) => Ok(count.trim().parse()?),
        None => Err(format!("valgrind counted nothing of {name}:\n{said}").into()),
    }
}

fn kept() -> Result<BTreeMap<String, u64>, Failure> {
    let text = match fs::read_to_string(path()) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error.into()),
    };
    let mut kept = BTreeMap::new();
    for line in text.lines() {
        let (name, count) =
            line.split_once(' ').ok_or("a line of kept.txt is no name and count")?;
        kept.insert(name.to_owned(), count.parse()?);
    }
    Ok(kept)
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches").join("instructions").join("kept.txt")
}
