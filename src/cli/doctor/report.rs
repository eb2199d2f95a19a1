//! The doctor's findings, for people and for programs.
//!
//! Must not: check anything itself.

use std::fmt;

use serde::Serialize;
use tokio::time::Instant;

use crate::cli::page::{BAD, DOUBTFUL, GOOD, PLAIN};
use crate::cli::terminal::{colours, one_line};
use crate::clock;
use crate::config::Secrets;

/// How one step went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One step of a check.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    pub(super) step: &'static str,
    pub(super) verdict: Verdict,
    ms: u64,
    pub(super) finding: String,
    /// How to fix it.
    pub(super) cure: Option<String>,
}

/// All steps of one check.
#[derive(Debug, Serialize)]
pub(super) struct Examined {
    kind: &'static str,
    name: String,
    verdict: Verdict,
    pub(super) steps: Vec<Step>,
}

/// All checks.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) ok: bool,
    examined: Vec<Examined>,
}

/// A check that is under way.
#[derive(Debug, Default)]
pub(super) struct Check {
    steps: Vec<Step>,
    open: Option<(&'static str, Instant)>,
}

impl Check {
    /// Begins a step; it lasts until its verdict.
    pub(super) fn begin(&mut self, step: &'static str) -> &mut Self {
        self.open = Some((step, Instant::now()));
        self
    }

    /// Renames the present step.
    pub(super) fn is_about(&mut self, step: &'static str) {
        if let Some((open, _)) = &mut self.open {
            *open = step;
        }
    }

    pub(super) fn ok(&mut self, finding: impl Into<String>) {
        self.end(Verdict::Ok, finding.into(), None);
    }

    pub(super) fn warn(&mut self, finding: impl Into<String>, cure: impl Into<String>) {
        self.end(Verdict::Warn, finding.into(), Some(cure.into()));
    }

    pub(super) fn fail(&mut self, finding: impl Into<String>, cure: impl Into<String>) {
        self.end(Verdict::Fail, finding.into(), Some(cure.into()));
    }

    fn end(&mut self, verdict: Verdict, finding: String, cure: Option<String>) {
        let (step, begun) = self.open.take().unwrap_or_else(|| ("time", Instant::now()));
        let ms = clock::millis_of(begun.elapsed());
        self.steps.push(Step { step, verdict, ms, finding, cure });
    }

    pub(super) fn into_examined(self, kind: &'static str, name: &str) -> Examined {
        let verdict = self.steps.iter().map(|step| step.verdict).max().unwrap_or(Verdict::Ok);
        Examined { kind, name: name.to_owned(), verdict, steps: self.steps }
    }
}

impl Examined {
    /// The same without secrets: a peer's answers may repeat them.
    pub(super) fn without(mut self, secrets: &Secrets) -> Self {
        for step in &mut self.steps {
            step.finding = secrets.hide(std::mem::take(&mut step.finding));
            step.cure = step.cure.take().map(|cure| secrets.hide(cure));
        }
        self
    }
}

impl Report {
    pub(super) fn of(examined: Vec<Examined>) -> Self {
        let ok = examined.iter().all(|one| one.verdict != Verdict::Fail);
        Self { ok, examined }
    }

    /// A summary in one line.
    pub(super) fn summary(&self) -> String {
        let count = |verdict| self.examined.iter().filter(|one| one.verdict == verdict).count();
        let [ok, warn, fail] = [Verdict::Ok, Verdict::Warn, Verdict::Fail].map(count);
        format!("{ok} well, {warn} with warnings, {fail} failed")
    }
}

impl fmt::Display for Examined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = if self.kind == self.name { "" } else { self.name.as_str() };
        writeln!(f, "{}", format!("{} {title}", self.kind).trim_end())?;
        for step in &self.steps {
            let (word, style) = match step.verdict {
                Verdict::Ok => ("ok  ", GOOD),
                Verdict::Warn => ("warn", DOUBTFUL),
                Verdict::Fail => ("FAIL", BAD),
            };
            let style = if colours(&std::io::stdout()) { style } else { PLAIN };
            let finding = one_line(&step.finding);
            let took = format!("{} ms", step.ms);
            writeln!(f, "  {style}{word}{style:#}  {:<10}  {took:>8}  {finding}", step.step)?;
            if let Some(cure) = &step.cure {
                writeln!(f, "{:30}cure: {}", "", one_line(cure))?;
            }
        }
        writeln!(f)
    }
}
