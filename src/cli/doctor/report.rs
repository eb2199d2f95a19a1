//! The doctor's findings, for people and for programs.
//!
//! Must not: check anything itself.

use serde::Serialize;
use tokio::time::Instant;

use crate::cli::page::{BAD, DOUBTFUL, GOOD, PLAIN, Page};
use crate::cli::terminal::one_line;
use crate::clock;
use crate::config::Secrets;
use crate::model::Redaction;

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

    /// Gives the last step another cure, if it is this step and has failed: its own cure is that of
    /// any refusal, and more is known by now.
    pub(super) fn correct_cure(&mut self, step: &'static str, cure: String) {
        if let Some(last) = self.steps.last_mut()
            && last.step == step
            && last.verdict == Verdict::Fail
        {
            last.cure = Some(cure);
        }
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
    /// The same without secrets, and without what `redact` matches, as the status of the daemon has
    /// it: a peer's answers may repeat them.
    pub(super) fn without(mut self, secrets: &Secrets, redact: &Redaction) -> Self {
        let clean = |text: String| {
            let text = secrets.hide(text);
            redact.apply(&text, &mut 0).unwrap_or(text)
        };
        for step in &mut self.steps {
            step.finding = clean(std::mem::take(&mut step.finding));
            step.cure = step.cure.take().map(clean);
        }
        self
    }
}

impl Report {
    pub(super) fn new(examined: Vec<Examined>) -> Self {
        let ok = examined.iter().all(|one| one.verdict != Verdict::Fail);
        Self { ok, examined }
    }

    /// A summary in one line.
    pub(super) fn summary(&self) -> String {
        let [ok, warn, fail] = [Verdict::Ok, Verdict::Warn, Verdict::Fail]
            .map(|verdict| self.examined.iter().filter(|one| one.verdict == verdict).count());
        format!("{ok} well, {warn} with warnings, {fail} failed")
    }
}

impl Examined {
    /// The steps, for people.
    pub(super) fn page(&self) -> Page {
        let title = if self.kind == self.name { "" } else { self.name.as_str() };
        let mut page = Page::default();
        page.line(PLAIN, format!("{} {title}", self.kind));
        for step in &self.steps {
            let (style, word) = match step.verdict {
                Verdict::Ok => (GOOD, "ok  "),
                Verdict::Warn => (DOUBTFUL, "warn"),
                Verdict::Fail => (BAD, "FAIL"),
            };
            let finding = one_line(&step.finding);
            let took = format!("{} ms", step.ms);
            let rest = format!("  {:<10}  {took:>8}  {finding}", step.step);
            page.pieces([(PLAIN, "  ".to_owned()), (style, word.to_owned()), (PLAIN, rest)]);
            if let Some(cure) = &step.cure {
                page.verbatim(PLAIN, &format!("{:30}cure: {}", "", one_line(cure)));
            }
        }
        page.line(PLAIN, "");
        page
    }
}
