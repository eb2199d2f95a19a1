//! What each format says, and that no text of others gets out of its place.

use std::time::{Duration, SystemTime};

use super::*;
use crate::config::Topic;
use crate::notify::notice::{Details, Several};

fn page() -> Url {
    Url::parse("https://bridge.acme.intranet").expect("an address")
}

fn waiting(details: Details) -> Notice {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let subject = Subject {
        key: "approval/apr_1".to_owned(),
        topic: Topic::Approval,
        name: "fs_rm".to_owned(),
        app: Some("billing".to_owned()),
        backend: Some("fs".to_owned()),
        run: Some("run_1".to_owned()),
        approval: Some("apr_1".to_owned()),
        since: at,
        until: Some(at + Duration::from_secs(275)),
        summary: None,
        cure: None,
        receiver: None,
        details,
    };
    Notice { id: "msg_1".to_owned(), at, news: News::Began(subject) }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn json_has_what_waits_and_the_link_to_it() {
    let arguments = r#"{"n" : 1.10,"u":"\u202e"}"#.to_owned();
    let details = Details { arguments: Some(arguments.clone()), ..Details::default() };
    let text = json_body(&waiting(details), &page());
    assert!(text.contains(&format!(r#""arguments":{arguments}"#)), "verbatim: {text}");
    let mut body = parsed(&text);
    body["data"]["arguments"] = Value::Null;
    let expected = json!({
        "type": "approval.waiting",
        "timestamp": "2027-01-15T08:00:00.000Z",
        "id": "msg_1",
        "title": "Approval wanted: fs_rm",
        "text": body["text"],
        "link": "https://bridge.acme.intranet/#overview/apr_1",
        "data": {
            "topic": "approval", "name": "fs_rm", "approval": "apr_1", "app": "billing",
            "backend": "fs", "run": "run_1", "since": "2027-01-15T08:00:00.000Z",
            "until": "2027-01-15T08:04:35.000Z", "arguments": null,
        },
    });
    assert_eq!(body, expected);
}

#[test]
fn json_of_an_end_has_the_outcome_and_no_arguments() {
    let details = Details { arguments: Some("{}".to_owned()), ..Details::default() };
    let Notice { news: News::Began(subject), id, at } = waiting(details) else {
        panic!("it began")
    };
    let ending = Ending {
        outcome: "denied".to_owned(),
        by: Some("operator".to_owned()),
        reason: Some("not \"today\"".to_owned()),
    };
    let news = News::Ended(subject, ending);
    let body = parsed(&json_body(&Notice { id, at, news }, &page()));
    assert_eq!(body["type"], "approval.decided");
    let data = &body["data"];
    assert_eq!(
        (&data["outcome"], &data["by"], &data["reason"]),
        (&json!("denied"), &json!("operator"), &json!("not \"today\""))
    );
    assert_eq!(data.get("arguments"), None);
}

#[test]
fn json_of_several_has_their_number() {
    let several = Several { waiting: [("approval".to_owned(), 12)].into(), ended: 1, dropped: 3 };
    let notice = Notice { news: News::Several(several), ..waiting(Details::default()) };
    let body = parsed(&json_body(&notice, &page()));
    assert_eq!((&body["type"], &body["data"]["count"]), (&json!("several"), &json!(16)));
    assert_eq!(body["link"], "https://bridge.acme.intranet/#overview");
}

/// The members that alertmanager sends, and that all three products show.
#[test]
fn slack_has_an_attachment_whose_quoted_texts_are_code() {
    let hostile = "```<!channel> <https://evil|click> & @all".to_owned();
    let details = Details { reason: Some(hostile), ..Details::default() };
    let mut notice = waiting(details);
    if let News::Began(subject) = &mut notice.news {
        subject.run = Some("`*run*`<!here>".to_owned());
    }
    let body = slack(&notice, &page());
    let attachment = &body["attachments"][0];
    let members: Vec<&String> = attachment.as_object().expect("a map").keys().collect();
    assert_eq!(members, ["color", "fallback", "mrkdwn_in", "text", "title", "title_link"]);
    assert_eq!(attachment["title"], "Approval wanted: fs_rm");
    assert_eq!(attachment["title_link"], "https://bridge.acme.intranet/#overview/apr_1");
    let text = attachment["text"].as_str().expect("a text");
    assert!(!text.contains('<') && !text.contains('>'), "no markup of Slack: {text}");
    assert!(text.contains("run `'*run*'&lt;!here&gt;`"), "a value is code: {text}");
    let block = text.split("```").nth(1).expect("a block of code");
    assert!(block.contains("&lt;!channel&gt; &lt;https://evil|click&gt; &amp; @all"), "{block}");
    assert_eq!(text.matches("```").count(), 2, "the text does not end its block: {text}");
}

/// The members that apprise sends to ntfy's root.
#[test]
fn ntfy_is_posted_to_the_root_with_its_topic() {
    let url = Url::parse("https://ntfy.acme/sub/bridge-alerts").expect("an address");
    let (root, text) = body(NoticeFormat::Ntfy, &waiting(Details::default()), &page(), &url);
    assert_eq!(root.as_str(), "https://ntfy.acme/sub/");
    let body = parsed(&text);
    let expected = json!({
        "topic": "bridge-alerts",
        "title": "Approval wanted: fs_rm",
        "message": body["message"],
        "priority": 4,
        "tags": ["warning"],
        "click": "https://bridge.acme.intranet/#overview/apr_1",
    });
    assert_eq!(body, expected);
    let message = body["message"].as_str().expect("a text");
    assert!(message.starts_with("A call of fs_rm waits for approval.\napp billing"), "{message}");
}

#[test]
fn texts_of_others_never_come_first_and_hide_nothing() {
    let details = Details {
        arguments: Some("--rm \u{202e}x".to_owned()),
        question: Some("q".repeat(3000)),
        ..Details::default()
    };
    let words = waiting(details).words(&page());
    let text = words.text();
    assert!(text.starts_with("A call of"), "{text}");
    assert!(!text.contains('\u{202e}'), "{text}");
    assert!(text.len() < 2000 && text.contains("(3000 bytes)"), "{text}");
    for text in [words.title, text] {
        assert!(!text.starts_with('-'), "no option: {text}");
    }
}
