//! The bodies of webhooks. `json` is the bridge's own; `slack` is what Slack, Mattermost and
//! Rocket.Chat read; `ntfy` is what ntfy takes at its root.
//!
//! Must not: let a text of others be read as markup.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use url::Url;

use super::notice::{Ending, News, Notice, Quoted, Subject, Words};
use crate::clock::rfc3339;
use crate::config::NoticeFormat;

/// The most bytes of a message that ntfy shows; it makes a file of a longer one.
const NTFY_MESSAGE: usize = 4000;

/// The body of a notice, and where it is posted.
pub fn body(format: NoticeFormat, notice: &Notice, page: &Url, url: &Url) -> (Url, String) {
    match format {
        NoticeFormat::Json => (url.clone(), json_body(notice, page)),
        NoticeFormat::Slack => (url.clone(), slack(notice, page).to_string()),
        NoticeFormat::Ntfy => {
            let (root, topic) = ntfy_place(url);
            (root, ntfy(notice, page, &topic).to_string())
        }
    }
}

/// The bridge's own form. Members may be added.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Json<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: String,
    id: &'a str,
    title: String,
    text: String,
    link: String,
    data: Value,
}

/// The members of `data` that are JSON texts of others, verbatim.
#[derive(Serialize)]
struct Verbatim<'a> {
    #[serde(flatten)]
    own: serde_json::Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<&'a RawValue>,
}

/// The body of the format `json`, which commands get, too.
pub fn json_body(notice: &Notice, page: &Url) -> String {
    let words = notice.words(page);
    let head = Json {
        kind: notice.news.kind(),
        timestamp: rfc3339(notice.at),
        id: &notice.id,
        text: words.text(),
        title: words.title,
        link: words.link,
        data: Value::Null,
    };
    let data = match &notice.news {
        News::Began(subject) => data(subject, None),
        News::Ended(subject, ending) => data(subject, Some(ending)),
        News::Several(several) => json!({
            "count": several.count(), "waiting": several.waiting, "ended": several.ended,
            "dropped": several.dropped,
        })
        .to_string(),
        News::Test => "{}".to_owned(),
    };
    // The texts of others keep their bytes, so they cannot go through a `Value`.
    let head = serde_json::to_string(&head).expect("strings can be written");
    let head = head.strip_suffix("null}").expect("`data` is last, and null");
    format!("{head}{data}}}")
}

fn data(subject: &Subject, ending: Option<&Ending>) -> String {
    let details = &subject.details;
    let mut own = serde_json::Map::new();
    let texts = [
        ("approval", subject.approval.as_ref()),
        ("app", subject.app.as_ref()),
        ("backend", subject.backend.as_ref()),
        ("run", subject.run.as_ref()),
        ("summary", subject.summary.as_ref()),
        ("cure", subject.cure.as_ref()),
        ("outcome", ending.map(|ending| &ending.outcome)),
        ("by", ending.and_then(|ending| ending.by.as_ref())),
        ("reason", ending.map_or(details.reason.as_ref(), |ending| ending.reason.as_ref())),
    ];
    own.insert("topic".to_owned(), subject.topic.as_str().into());
    own.insert("name".to_owned(), subject.name.clone().into());
    for (key, text) in texts {
        if let Some(text) = text {
            own.insert(key.to_owned(), text.clone().into());
        }
    }
    own.insert("since".to_owned(), rfc3339(subject.since).into());
    if let Some(until) = subject.until {
        own.insert("until".to_owned(), rfc3339(until).into());
    }
    if !details.left_out.is_empty() && ending.is_none() {
        own.insert("leftOut".to_owned(), json!(details.left_out));
    }
    let raw = |text: &'_ Option<String>| -> Option<Box<RawValue>> {
        text.clone().filter(|_| ending.is_none()).and_then(|text| RawValue::from_string(text).ok())
    };
    let (arguments, question) = (raw(&details.arguments), raw(&details.question));
    let whole = Verbatim { own, arguments: arguments.as_deref(), question: question.as_deref() };
    serde_json::to_string(&whole).expect("strings and JSON can be written")
}

/// An attachment: alertmanager sends such a one, and all three products show it.
fn slack(notice: &Notice, page: &Url) -> Value {
    let words = notice.words(page);
    let mut text = slack_text(&words.lead);
    let facts: Vec<String> =
        words.facts.iter().map(|(name, value)| format!("{name} {}", code(value))).collect();
    if !facts.is_empty() {
        text.push_str(&format!("\n{}", facts.join(", ")));
    }
    if let Some(cure) = &words.cure {
        text.push_str(&format!("\n{}", slack_text(cure)));
    }
    for Quoted { label, text: quoted } in &words.quoted {
        text.push_str(&format!("\n{label}:\n```\n{}\n```", unfenced(quoted)));
    }
    let color = if notice.news.is_urgent() { "warning" } else { "good" };
    json!({ "attachments": [{
        "title": slack_text(&words.title),
        "title_link": words.link,
        "fallback": slack_text(&format!("{}: {}", words.title, words.lead)),
        "text": text,
        "color": color,
        "mrkdwn_in": ["text"],
    }] })
}

/// A value between backticks, where neither product reads markup or calls anybody.
fn code(value: &str) -> String {
    format!("`{}`", slack_escape(&value.replace('`', "'")))
}

/// The bridge's own words, which have names of others in them: marks of markup are taken out.
fn slack_text(text: &str) -> String {
    let quiet: String = text
        .chars()
        .map(|c| match c {
            '*' | '~' | '[' | ']' | '|' | '\\' => ' ',
            '@' => '\u{ff20}',
            c => c,
        })
        .collect();
    slack_escape(&quiet)
}

fn slack_escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A text that cannot end the block of code that it stands in.
fn unfenced(text: &str) -> String {
    slack_escape(&text.replace('`', "'"))
}

/// The server's root, which takes JSON, and the topic, which is the address's last part.
fn ntfy_place(url: &Url) -> (Url, String) {
    let (above, topic) = url.path().rsplit_once('/').unwrap_or_default();
    let mut root = url.clone();
    root.set_path(&format!("{above}/"));
    (root, topic.to_owned())
}

fn ntfy(notice: &Notice, page: &Url, topic: &str) -> Value {
    let words: Words = notice.words(page);
    let text = words.text();
    let message = text.get(..text.floor_char_boundary(NTFY_MESSAGE)).unwrap_or_default();
    json!({
        "topic": topic,
        "title": words.title,
        "message": message,
        "priority": if notice.news.is_urgent() { 4 } else { 3 },
        "tags": [if notice.news.is_urgent() { "warning" } else { "information_source" }],
        "click": words.link,
    })
}

#[cfg(test)]
mod tests;
