//! `notify`: the receivers of notices.
//!
//! Must not: post a notice, start the program, or show an address.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use secrecy::ExposeSecret as _;
use url::Url;

use super::backend::Backends;
use super::program::ArgvKeys;
use super::web::is_in_the_open;
use super::{UnresolvedEntry, Validator, mistakes, optional, plain_secret};
use crate::config::notify::{Detail, NoticeReceiver, NoticeWay, SigningSecret, Topic, Webhook};
use crate::config::reference::Template;
use crate::config::scalars::OneOrMany;
use crate::config::{
    At, Dialect, List, Named, NodeId, NoticeFormat, Unresolved, Written, file_format,
};
use crate::model::BackendName;

/// What a Standard Webhooks secret begins with.
const SECRET_PREFIX: &str = "whsec_";
/// How many bytes of a key Standard Webhooks allows.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// A path of this length is worth hiding where it stands without its host.
const LONG_PATH: usize = 16;

impl Validator<'_> {
    pub(super) fn notify(
        &self,
        section: Option<&Named<file_format::Notify>>,
        backends: &Backends,
    ) -> Vec<NoticeReceiver> {
        let mut receivers = Vec::new();
        for (name, at) in section.iter().flat_map(|section| &section.value) {
            let Ok(name) = BackendName::parse(name) else {
                self.error(at.node.key(), mistakes::receiver_name(name));
                continue;
            };
            receivers.extend(self.notice_receiver(name, at, backends));
        }
        receivers
    }

    fn notice_receiver(
        &self,
        name: BackendName,
        at: &At<file_format::Notify>,
        backends: &Backends,
    ) -> Option<NoticeReceiver> {
        let At { value: entry, node } = at;
        let on = self.needed(*node, &entry.on, mistakes::no_topics())?;
        if on.value.is_empty() {
            self.error(on.node, mistakes::no_topics());
        }
        let on: BTreeSet<Topic> = on.value.iter().map(|at| at.value).collect();
        let with = self.details(entry.with.as_ref(), &on);
        let named = entry.backends.as_ref().map(|list| {
            let names = list.value.iter();
            names.filter_map(|at| self.named_backend(at.node, &at.value, backends)).collect()
        });
        let way = self.way_or_missing(&name, *node, entry, backends)?;
        Some(NoticeReceiver { name, on, backends: named, with, way })
    }

    /// The details that are asked for; one that no notice of `on` can have is a mistake.
    fn details(&self, list: Option<&List<Detail>>, on: &BTreeSet<Topic>) -> BTreeSet<Detail> {
        let mut details = BTreeSet::new();
        for at in list.iter().flat_map(|list| &list.value) {
            let topics: &[Topic] = match at.value {
                Detail::Arguments => &[Topic::Approval, Topic::Question],
                Detail::Question => &[Topic::Question],
                Detail::Reason => &[Topic::Approval, Topic::Question, Topic::Problem],
            };
            if !topics.iter().any(|topic| on.contains(topic)) {
                let wanted: Vec<&str> = topics.iter().map(|topic| topic.as_str()).collect();
                self.error(at.node, mistakes::idle_detail(at.value.as_str(), wanted.join(", ")));
            }
            details.insert(at.value);
        }
        details
    }

    /// The way to a receiver. If what the entry refers to is missing, the bridge runs without it,
    /// and reports it.
    fn way_or_missing(
        &self,
        name: &BackendName,
        node: NodeId,
        entry: &file_format::Notify,
        backends: &Backends,
    ) -> Option<NoticeWay> {
        let before = self.findings.borrow().mistakes.len();
        let way = self.way(node, entry, backends);
        if !self.is_only_unresolved(before, || UnresolvedEntry::Receiver(name.clone())) {
            return way;
        }
        Some(NoticeWay::Unresolved(Unresolved { section: "notify", ..Unresolved::default() }))
    }

    fn way(
        &self,
        node: NodeId,
        entry: &file_format::Notify,
        backends: &Backends,
    ) -> Option<NoticeWay> {
        match (&entry.webhook, &entry.command) {
            (Some(webhook), Some(command)) => {
                let later = webhook.node.max(command.node).key();
                self.refuse(later, mistakes::webhook_or_command())
            }
            (None, None) => self.missing(node, mistakes::no_way()),
            (Some(webhook), None) => {
                self.check_foreign_keys(node, &["env", "cwd", "sandbox"], "webhook");
                self.webhook(webhook).map(NoticeWay::Webhook)
            }
            (None, Some(command)) => {
                let keys = ArgvKeys {
                    argv: command,
                    env: entry.env.as_ref(),
                    cwd: entry.cwd.as_ref(),
                    sandbox: entry.sandbox.as_ref(),
                };
                self.argv_program(&keys, &backends.programs).map(NoticeWay::Command)
            }
        }
    }

    fn webhook(&self, at: &At<file_format::Webhook>) -> Option<Webhook> {
        let At { value: section, node } = at;
        let format = section.format.as_ref().map_or(NoticeFormat::Json, |at| at.value);
        let address = self.needed(*node, &section.url, mistakes::no_webhook_url())?;
        let url = self.webhook_url(address, format);
        let secrets = optional(&section.secret, |at| self.signing_secrets(at));
        let headers = self.headers(section.headers.as_ref(), Dialect::Own, url.as_deref());
        let tls = self.server_tls(section.tls.as_ref(), Dialect::Own, url.as_deref())?;
        let secrets = secrets?.unwrap_or_default();
        Some(Webhook { url: url?, format, headers: headers?, secrets, tls })
    }

    /// The address of a webhook, which is a secret: it is shown as the file's reference to it, or
    /// not at all.
    fn webhook_url(&self, at: &At<String>, format: NoticeFormat) -> Option<Written<Url>> {
        let (text, template) = self.resolve(at.node, &at.value, Dialect::Own)?;
        let text = text.trim();
        let shown = template.to_string();
        let url = self.outside(Some(&template), || {
            let url = self.checked_url(at.node, text, &shown)?;
            let topic = url.path_segments().and_then(|mut segments| segments.next_back());
            if format == NoticeFormat::Ntfy && topic.is_none_or(str::is_empty) {
                return self.refuse(at.node, mistakes::no_ntfy_topic());
            }
            Some(url)
        })?;
        if is_in_the_open(&url) {
            self.warn(at.node, "notices travel without TLS; write https:// in the URL");
        }
        let has_secret_part = url.path().len() > 1 || url.query().is_some();
        if template.is_plain() && has_secret_part && url.scheme() == "https" {
            self.warn(at.node, plain_secret("`url`"));
        }
        self.keep_secret(url.as_str());
        if url.path().len() >= LONG_PATH {
            self.keep_secret(url.path());
        }
        if let Some(query) = url.query() {
            self.keep_secret(query);
        }
        let shown = if template.is_plain() { "***".to_owned() } else { shown };
        Some(self.written(url, shown))
    }

    fn signing_secrets(&self, at: &At<OneOrMany>) -> Option<Vec<SigningSecret>> {
        let OneOrMany(list) = &at.value;
        if list.is_empty() {
            return self.refuse(at.node, mistakes::is_empty("`secret`"));
        }
        super::all(list.iter().map(|at| self.signing_secret(at)))
    }

    fn signing_secret(&self, at: &At<String>) -> Option<SigningSecret> {
        let text = self.secret(at.node, &at.value, "`secret`")?;
        let text = text.expose_secret();
        let key = text.strip_prefix(SECRET_PREFIX).and_then(|encoded| {
            self.keep_secret(encoded);
            BASE64_STANDARD.decode(encoded).ok()
        });
        if let Some(key) = key.filter(|key| KEY_BYTES.contains(&key.len())) {
            return Some(SigningSecret(key));
        }
        let template = Template::parse(&at.value, Dialect::Own).ok();
        self.outside(template.as_ref(), || self.refuse(at.node, mistakes::signing_secret()))
    }
}
