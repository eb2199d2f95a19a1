//! What a person reads before deciding.

use super::*;
use crate::cli::page::Paper;
use crate::http::api::approvals::ApprovalList;

#[test]
fn whole_arguments_of_calls_that_wait() {
    let now = humantime::parse_rfc3339("2026-01-01T00:01:15Z").unwrap();
    let text = r#"{"mayDecide":true,"approvals":[
        {"id":"apr_1","state":"waiting","kind":"call","app":"a","runId":"run_1","toolUseId":"u","tool":"","argumentsSha256":"","name":"fs_rm","backend":"fs",
         "argumentsText":"{\"path\":  \"/srv\"}","since":"2026-01-01T00:01:05.300Z",
         "deadline":"2026-01-01T00:05:20.000Z","decidedAt":null,"reason":null},
        {"id":"apr_2","state":"waiting","kind":"call","app":"b","runId":null,"toolUseId":"u","tool":"","argumentsSha256":"","name":"hr","backend":"hr",
         "argumentsText":"{}","askedAgain":"Its tool has changed.","since":"2026-01-01T00:01:15.000Z",
         "deadline":"2026-01-01T00:01:16.900Z","decidedAt":null,"reason":null},
        {"id":"apr_3","state":"waiting","kind":"question","app":"b","runId":null,"toolUseId":"u","tool":"","argumentsSha256":"","name":"ask","backend":"ask",
         "argumentsText":"{}","since":"2026-01-01T00:01:15.000Z",
         "question":{"message":"Who\n\u202e?","requestedSchema":{"type":"object","required":["who"],"properties":{
           "tags":{"type":"array","items":{"anyOf":[{"const":"a","title":"A"},{"const":"b"}]},"default":["a"]},
           "who":{"type":"string","enum":["Ada","Bob"],"description":"A name"}}}},
         "deadline":"2026-01-01T00:01:16.900Z","decidedAt":null,"reason":null},
        {"id":"apr_4","state":"waiting","kind":"question","app":"b","runId":null,"toolUseId":"u","tool":"","argumentsSha256":"","name":"ask","backend":"ask",
         "argumentsText":"{}","since":"2026-01-01T00:01:15.000Z","flaw":"its `url` is odd",
         "question":{"message":"Go","mode":"url","url":"javascript:x"},
         "deadline":"2026-01-01T00:01:16.900Z","decidedAt":null,"reason":null},
        {"id":"apr_5","state":"waiting","kind":"question","app":"b","runId":null,"toolUseId":"u","tool":"","argumentsSha256":"","name":"ask","backend":"ask",
         "argumentsText":"{}","since":"2026-01-01T00:01:15.000Z",
         "question":{"message":"Go","mode":"url","url":"https://a.example@B.example\\@c"},
         "deadline":"2026-01-01T00:01:16.900Z","decidedAt":null,"reason":null},
        {"id":"apr_6","state":"waiting","kind":"question","app":"b","runId":null,"toolUseId":"u","tool":"","argumentsSha256":"","name":"ask","backend":"ask",
         "argumentsText":"{}","since":"2026-01-01T00:01:15.000Z","flaw":"it is nested too deep",
         "question":{"message":"Deep?","requestedSchema":DEEP},
         "deadline":"2026-01-01T00:01:16.900Z","decidedAt":null,"reason":null},
        {"id":"apr_0","state":"denied","kind":"call","app":"b","runId":null,"toolUseId":"u","tool":"","argumentsSha256":"","name":"hr","backend":"hr",
         "since":"2026-01-01T00:00:00.000Z","deadline":"2026-01-01T00:04:00.000Z",
         "decidedAt":"2026-01-01T00:01:00.000Z","reason":"Not\ntoday."}]}"#;
    let text = text.replace("DEEP", &format!("{}{}", "[".repeat(200), "]".repeat(200)));
    let list: ApprovalList = parse(&text).unwrap_or_else(|error| panic!("{error:?}"));
    let paper = Paper { colours: false, columns: Some(40) };
    let expected = r#"apr_1
fs_rm of fs, app a, run run_1
asked 9s ago, expires in 4m 5s
{"path":  "/srv"}

apr_2
hr of hr, app b, by hand
asked 0s ago, expires in 1s
Its tool has changed.
{}

apr_3
ask of ask, app b, by hand
asked 0s ago, expires in 1s
{}
its server asks: Who �?
  tags: {"default":["a"],"items":{"anyOf":[{"const":"a","title":"A"},{"const":"b"}]},"type":"array"}
  who: required {"description":"A name","enum":["Ada","Bob"],"type":"string"}
mantyx-bridge answer apr_3 KEY=VALUE …

apr_4
ask of ask, app b, by hand
asked 0s ago, expires in 1s
{}
its server asks: Go
open javascript:x
It can only be denied: its `url` is odd.

apr_5
ask of ask, app b, by hand
asked 0s ago, expires in 1s
{}
its server asks: Go
open https://a.example@B.example\@c
its host is b.example
mantyx-bridge answer apr_5

apr_6
ask of ask, app b, by hand
asked 0s ago, expires in 1s
{}
its server asks: Deep?
It can only be denied: it is nested too deep.

mantyx-bridge approve ID, or deny ID --reason TEXT
"#;
    assert_eq!(shown(&list.approvals, now, "mantyx-bridge").text(paper), expected);
    assert_eq!(shown(&[], now, "mantyx-bridge").text(paper), "No call waits for a person.\n");
}
