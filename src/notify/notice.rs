//! What a notice says: its type, its title and its text, in the bridge's own words; texts of others
//! come after them, and only where the receiver has asked for them.
//!
//! Must not: know how a receiver is reached, or the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;
use url::Url;

use crate::clock::rfc3339;
use crate::config::{Detail, NoticeReceiver, Topic};
use crate::model::catalog::{hash_of, hex};
use crate::model::visible;

/// The most bytes of a text of others that a notice has as JSON; a longer one is left out.
pub const MAX_DETAIL: usize = 16 << 10;
/// The most bytes of it that a text for people has.
const SHOWN_DETAIL: usize = 1000;
/// The most bytes of a name.
const MAX_NAME: usize = 200;

/// What receivers are told of: it waits for a person, has changed, or is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Names it among all that there is: the same after a restart, and at each replica.
    pub key: String,
    pub topic: Topic,
    /// The tool as the model calls it, a backend, or the part of the bridge that has a problem.
    pub name: String,
    pub app: Option<String>,
    pub backend: Option<String>,
    pub run: Option<String>,
    /// What a decision names.
    pub approval: Option<String>,
    pub since: SystemTime,
    /// When it counts as denied.
    pub until: Option<SystemTime>,
    /// What has changed or is wrong, in the bridge's own words.
    pub summary: Option<String>,
    pub cure: Option<String>,
    /// A receiver whose own trouble this is; it is not told of it.
    pub receiver: Option<String>,
    #[serde(default)]
    pub details: Details,
}

/// Texts of models, servers and people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// JSON.
    pub arguments: Option<String>,
    /// JSON: the parameters of the server's question.
    pub question: Option<String>,
    pub reason: Option<String>,
    /// Those that are too long.
    #[serde(default)]
    pub left_out: BTreeSet<String>,
}

/// How something ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// An outcome of an approval, or `over`.
    pub outcome: String,
    pub by: Option<String>,
    pub reason: Option<String>,
}

/// How many notices one stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Several {
    /// Of what waits or is wrong, by the topic's word.
    pub waiting: BTreeMap<String, usize>,
    pub ended: usize,
    /// Those for which there was no room.
    pub dropped: u64,
}

/// What a notice tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    Began(Subject),
    Ended(Subject, Ending),
    Several(Several),
    Test,
}

/// A notice, whole and unchangeable: each attempt to deliver it says the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Of all attempts. A receiver that has it already may ignore the notice.
    pub id: String,
    pub at: SystemTime,
    pub news: News,
}

/// A text of others, with the word before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quoted {
    pub label: &'static str,
    pub text: String,
}

/// The words of a notice, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    pub title: String,
    /// The first sentence.
    pub lead: String,
    pub facts: Vec<(&'static str, String)>,
    pub cure: Option<String>,
    pub quoted: Vec<Quoted>,
    pub link: String,
}

impl Subject {
    /// What `receiver` is told of it; `None`: nothing.
    pub fn for_receiver(&self, receiver: &NoticeReceiver) -> Option<Self> {
        let concerns = match (&receiver.backends, &self.backend) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(names), Some(own)) => names.iter().any(|name| name.as_str() == own),
        };
        let is_own_trouble = self.receiver.as_deref() == Some(receiver.name.as_str());
        if !concerns || is_own_trouble || !receiver.on.contains(&self.topic) {
            return None;
        }
        let mut subject = self.clone();
        subject.details = subject.details.only(&receiver.with);
        Some(subject)
    }

    /// The id of its notice: the same after a restart, as the receiver may have it already. A
    /// problem that comes again is another one.
    pub fn message_id(&self) -> String {
        let occurrence = match self.topic {
            Topic::Problem => rfc3339(self.since),
            Topic::Approval | Topic::Question | Topic::Trust => String::new(),
        };
        let digest = hex(&hash_of([self.key.as_str(), &occurrence]).finalize());
        format!("msg_{}", digest.get(..24).unwrap_or(&digest))
    }

    /// Where the page shows it.
    fn fragment(&self) -> String {
        match (&self.approval, self.topic, &self.backend) {
            (Some(id), ..) => format!("overview/{id}"),
            (None, Topic::Trust, Some(backend)) => format!("trust/{backend}"),
            (None, Topic::Problem, Some(backend)) => format!("backends/{backend}"),
            _ => "overview".to_owned(),
        }
    }
}

impl Details {
    fn only(self, with: &BTreeSet<Detail>) -> Self {
        let mut left_out = self.left_out;
        left_out.retain(|name| with.iter().any(|detail| detail.as_str() == name));
        Self {
            arguments: self.arguments.filter(|_| with.contains(&Detail::Arguments)),
            question: self.question.filter(|_| with.contains(&Detail::Question)),
            reason: self.reason.filter(|_| with.contains(&Detail::Reason)),
            left_out,
        }
    }

    fn quoted(&self) -> Vec<Quoted> {
        let texts = [
            ("Arguments", &self.arguments),
            ("Question", &self.question),
            ("In its own words", &self.reason),
        ];
        let mut quoted = Vec::new();
        for (label, text) in texts {
            if let Some(text) = text {
                quoted.push(Quoted { label, text: brief(text) });
            }
        }
        for name in &self.left_out {
            let text = format!("{name} are too long for a notice");
            quoted.push(Quoted { label: "Left out", text });
        }
        quoted
    }
}

impl Ending {
    pub fn only(self, with: &BTreeSet<Detail>) -> Self {
        Self { reason: self.reason.filter(|_| with.contains(&Detail::Reason)), ..self }
    }
}

impl Several {
    /// The sum of `news`, and of so many for which there was no room.
    pub fn new<'a>(news: impl Iterator<Item = &'a News>, dropped: u64) -> Self {
        let mut sum = Self { dropped, ..Self::default() };
        for one in news {
            match one {
                News::Began(subject) => {
                    *sum.waiting.entry(subject.topic.as_str().to_owned()).or_default() += 1;
                }
                News::Ended(..) => sum.ended += 1,
                News::Several(_) | News::Test => {}
            }
        }
        sum
    }

    /// How many notices it stands for.
    pub fn count(&self) -> u64 {
        let waiting: usize = self.waiting.values().sum();
        (waiting + self.ended) as u64 + self.dropped
    }
}

impl News {
    /// What receivers know it by.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Began(subject) => match subject.topic {
                Topic::Approval => "approval.waiting",
                Topic::Question => "question.waiting",
                Topic::Trust => "trust.changed",
                Topic::Problem => "problem.began",
            },
            Self::Ended(subject, _) => match subject.topic {
                Topic::Approval => "approval.decided",
                Topic::Question => "question.decided",
                Topic::Trust => "trust.ended",
                Topic::Problem => "problem.ended",
            },
            Self::Several(_) => "several",
            Self::Test => "test",
        }
    }

    pub fn subject(&self) -> Option<&Subject> {
        match self {
            Self::Began(subject) | Self::Ended(subject, _) => Some(subject),
            Self::Several(_) | Self::Test => None,
        }
    }

    /// Whether a person has to do something about it.
    pub fn is_urgent(&self) -> bool {
        match self {
            Self::Began(_) => true,
            Self::Several(several) => !several.waiting.is_empty(),
            Self::Ended(..) | Self::Test => false,
        }
    }
}

impl Notice {
    /// The page's address at what the notice is about. The page asks a stranger to sign in.
    pub fn link(&self, page: &Url) -> String {
        let fragment = self.news.subject().map_or_else(|| "overview".to_owned(), Subject::fragment);
        let mut link = page.clone();
        link.set_fragment(Some(&fragment));
        link.into()
    }

    pub fn words(&self, page: &Url) -> Words {
        let link = self.link(page);
        match &self.news {
            News::Began(subject) => began(subject, link),
            News::Ended(subject, ending) => ended(subject, ending, link),
            News::Several(several) => several_words(several, link),
            News::Test => Words {
                title: "Test of mantyx-bridge".to_owned(),
                lead: "This is a test: nothing waits because of it.".to_owned(),
                facts: Vec::new(),
                cure: None,
                quoted: Vec::new(),
                link,
            },
        }
    }
}

impl Words {
    /// All of them but the title and the link. A text of others is never at its beginning.
    pub fn text(&self) -> String {
        let mut text = self.lead.clone();
        let facts: Vec<String> =
            self.facts.iter().map(|(name, value)| format!("{name} {value}")).collect();
        if !facts.is_empty() {
            text.push('\n');
            text.push_str(&facts.join(", "));
        }
        if let Some(cure) = &self.cure {
            text.push('\n');
            text.push_str(cure);
        }
        for Quoted { label, text: quoted } in &self.quoted {
            text.push_str(&format!("\n{label}: {quoted}"));
        }
        text
    }
}

fn began(subject: &Subject, link: String) -> Words {
    let name = name(&subject.name);
    let (title, lead) = match subject.topic {
        Topic::Approval => {
            (format!("Approval wanted: {name}"), format!("A call of {name} waits for approval."))
        }
        Topic::Question => (
            format!("Question: {name}"),
            format!("The server of a call of {name} asks a person, and waits for the answer."),
        ),
        Topic::Trust => (format!("Changed: {name}"), summary(subject)),
        Topic::Problem => (format!("Problem: {name}"), summary(subject)),
    };
    let cure = subject.cure.clone();
    Words { title, lead, facts: facts(subject), cure, quoted: subject.details.quoted(), link }
}

fn ended(subject: &Subject, ending: &Ending, link: String) -> Words {
    let name = name(&subject.name);
    let outcome = &ending.outcome;
    let (title, lead) = match subject.topic {
        Topic::Approval => {
            (format!("Decided: {name}"), format!("The call of {name} is {outcome}."))
        }
        Topic::Question => {
            (format!("Decided: {name}"), format!("The question of {name} is {outcome}."))
        }
        Topic::Trust | Topic::Problem => {
            (format!("Over: {name}"), format!("What was wrong with {name} is over."))
        }
    };
    let mut facts = facts(subject);
    facts.retain(|(label, _)| *label != "until");
    if let Some(by) = &ending.by {
        facts.push(("by", self::name(by)));
    }
    let reason = ending.reason.as_ref();
    let quoted = reason.map(|reason| Quoted { label: "Reason", text: brief(reason) });
    Words { title, lead, facts, cure: None, quoted: quoted.into_iter().collect(), link }
}

fn several_words(several: &Several, link: String) -> Words {
    let count = several.count();
    let mut parts = Vec::new();
    for (word, number) in &several.waiting {
        parts.push(format!("{word}: {number}"));
    }
    if several.ended > 0 {
        parts.push(format!("ended: {}", several.ended));
    }
    if several.dropped > 0 {
        parts.push(format!("not kept, as too many waited: {}", several.dropped));
    }
    Words {
        title: format!("{count} notices of mantyx-bridge"),
        lead: format!("There are {count} notices at once; {}.", parts.join(", ")),
        facts: Vec::new(),
        cure: None,
        quoted: Vec::new(),
        link,
    }
}

fn facts(subject: &Subject) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let texts = [("app", &subject.app), ("backend", &subject.backend), ("run", &subject.run)];
    for (label, text) in texts {
        if let Some(text) = text {
            facts.push((label, name(text)));
        }
    }
    if let Some(until) = subject.until {
        facts.push(("until", rfc3339(until)));
    }
    facts
}

fn summary(subject: &Subject) -> String {
    let text = subject.summary.as_deref().unwrap_or_default();
    format!("About {}: {text}", name(&subject.name))
}

/// A name in one line, with nothing in it that a reader does not see.
fn name(text: &str) -> String {
    visible::line(&visible::shown(text), MAX_NAME)
}

/// The beginning of a text of others, with nothing in it that a reader does not see.
fn brief(text: &str) -> String {
    let shown = visible::shown(text);
    if shown.len() <= SHOWN_DETAIL {
        return shown;
    }
    let head = shown.get(..shown.floor_char_boundary(SHOWN_DETAIL)).unwrap_or_default();
    format!("{head}… ({} bytes)", text.len())
}
