//! The command line.
//!
//! Must not: look at the machine.

use std::path::PathBuf;

use crate::parts;

/// What the program was started as.
#[derive(Debug)]
pub(crate) enum Started {
    Bench(Arguments),
    /// One of the processes that take part in a measurement.
    Role {
        role: String,
        rest: Vec<String>,
    },
}

#[derive(Debug)]
pub(crate) struct Arguments {
    /// Each part at a small size: whether it works, not how fast.
    pub(crate) short: bool,
    /// The bridge that is measured.
    pub(crate) daemon: PathBuf,
    /// Another one, that is measured beside it: what it was before a change.
    pub(crate) against: Option<PathBuf>,
    /// A database for a bridge that keeps its journal there, measured beside it.
    pub(crate) postgres: Option<String>,
    /// How long the load lasts after which memory is looked at; `None` for once through.
    pub(crate) soak_minutes: Option<u64>,
    /// All, if it is empty.
    pub(crate) parts: Vec<String>,
}

impl Arguments {
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Started, String> {
        let mut arguments = Self {
            short: false,
            daemon: PathBuf::from(env!("CARGO_BIN_EXE_mantyx-bridge")),
            against: None,
            postgres: None,
            soak_minutes: None,
            parts: Vec::new(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| usage(&format!("{word} wants a value")));
            match word.as_str() {
                "--role" => {
                    let role = value()?;
                    return Ok(Started::Role { role, rest: words.collect() });
                }
                // Cargo adds it.
                "--bench" => (),
                "--short" => arguments.short = true,
                "--daemon" => arguments.daemon = value()?.into(),
                "--against" => arguments.against = Some(value()?.into()),
                "--postgres" => arguments.postgres = Some(value()?),
                "--soak" => {
                    let text = value()?;
                    let minutes =
                        text.parse().map_err(|error| usage(&format!("--soak {text}: {error}")))?;
                    arguments.soak_minutes = Some(minutes);
                }
                part if parts::ALL.iter().any(|known| known.name == part) => {
                    arguments.parts.push(word);
                }
                _ => return Err(usage(&format!("{word:?} is no part and no option"))),
            }
        }
        Ok(Started::Bench(arguments))
    }
}

fn usage(why: &str) -> String {
    let parts: Vec<_> = parts::ALL.iter().map(|part| part.name).collect();
    format!(
        "{why}\nUsage: cargo bench --bench bridge -- [--short] [--daemon PATH] [--against PATH] \
         [--postgres URL] [--soak MINUTES] [PART…]\nParts: {}",
        parts.join(", ")
    )
}
