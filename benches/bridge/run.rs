//! The order of the whole: arguments, the parts one after the other, the table, the file.
//!
//! Must not: measure anything itself.

use std::process::ExitCode;

use crate::{
    arguments::{Arguments, Started},
    parts::{self, Setting},
    report::{Findings, Report},
    roles,
};

/// What goes wrong in a benchmark ends it; the text is for whoever started it.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

pub(crate) fn main() -> ExitCode {
    let done = match Arguments::read(std::env::args().skip(1)) {
        Ok(Started::Role { role, rest }) => runtime().block_on(roles::play(&role, rest)),
        Ok(Started::Bench(arguments)) => runtime().block_on(bench(arguments)),
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bridge benchmark: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One thread for the bench and for each role: what they do is little, and they must not take the
/// processor from each other by waking threads up.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made")
}

async fn bench(arguments: Arguments) -> Outcome<()> {
    let setting = Setting::prepare(arguments)?;
    let mut report = Report::new(&setting);
    for part in parts::chosen(&setting.arguments.parts) {
        println!("\n== {}: {}", part.name, part.what);
        let begun = crate::clock::now();
        let mut findings = Findings::default();
        let outcome = (part.run)(&setting, &mut findings).await;
        report.take(part.name, crate::clock::seconds_since(begun), findings, outcome.err());
    }
    report.finish(&setting)
}
