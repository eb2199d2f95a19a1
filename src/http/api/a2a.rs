//! `/a2a`: the agents of the bridge, for clients of A2A.
//!
//! `/a2a/NAME` is one agent. Its card has the bridge's address, and its requests are relayed in the
//! client's own wire. A message is a call, and takes the way of all calls: rights, approvals,
//! quotas, breaker, audit.
//!
//! docs/design/a2a.md says what it is not, and how it came about.
//!
//! Must not: know how a call is made, or change what an agent says to its client.

mod card;
mod error;
mod message;
mod path;
mod reply;
mod request;
mod send;
mod tasks;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use serde_json::json;

use self::card::CardView;
use self::error::{FrontError, ReplyForm};
use self::path::{FrontPath, Operation};
use self::request::{FrontRequest, RpcCall};
use super::{Api, ApiRequest, App, Body, HandlerResult, MAX_CALL, no_backend, proxy, response};
use crate::backend::{A2aWire, Generation};
use crate::config::A2aBinding;
use crate::http::Code;
use crate::model::{BackendName, Catalog, Members, Offer, RefKind, Route, Target};
use crate::traces::Context;

/// An agent as an app may use it now.
#[derive(Debug, Clone)]
struct Agent {
    name: BackendName,
    /// The name and the route of its tool.
    tool: String,
    route: Route,
    catalog: Arc<Catalog>,
    /// The wires that can be relayed; none of an agent that speaks gRPC alone.
    wires: Vec<A2aWire>,
}

/// A client, for the time of one request.
#[derive(Debug, Clone)]
struct Client {
    api: Api,
    app: Arc<App>,
    agent: Agent,
    wire: A2aWire,
    form: ReplyForm,
    trace: Context,
    /// The agent's address at the bridge.
    url: String,
}

impl Api {
    /// Answers a request below `/a2a`.
    pub(super) async fn a2a(&self, incoming: ApiRequest) -> HandlerResult {
        let request = &incoming.request;
        match path::read(request.method(), request.uri().path()) {
            Some(FrontPath::Agents) => self.a2a_agents(&incoming).await,
            Some(FrontPath::Card) => self.a2a_card(&incoming),
            Some(FrontPath::JsonRpc) => self.a2a_rpc(incoming).await,
            Some(FrontPath::Rest(generation, operation)) => {
                self.a2a_rest(incoming, generation, operation).await
            }
            None => Err(response::error(
                Code::NotFound,
                "The front has no such route. `GET /a2a` lists the agents, each with the address of \
                 its card; docs/a2a.md has the routes.",
            )),
        }
    }

    /// Lists the agents that the app may use.
    async fn a2a_agents(&self, ApiRequest { caller, request, .. }: &ApiRequest) -> HandlerResult {
        let app = Arc::clone(&caller.app);
        let base = self.base(request);
        let written = self.write(&caller.app.name, move |api| {
            let offer = api.offer(&app);
            let mut agents = Vec::new();
            for name in offer.in_order(|_| true) {
                let Ok(agent) = api.agent(&offer, name.as_str()) else { continue };
                if agent.wires.is_empty() {
                    continue;
                }
                let Some(card) = agent.catalog.public_card() else { continue };
                let members = Members::read(card.get()).unwrap_or(Members(Vec::new()));
                let url = address(&base, &agent.name);
                agents.push(json!({
                    "name": agent.name,
                    "title": members.string("name"),
                    "description": members.string("description"),
                    "url": url,
                    "card": format!("{url}/.well-known/agent-card.json"),
                }));
            }
            Ok(response::json(&json!({ "agents": agents })))
        });
        Ok(written.await)
    }

    fn a2a_card(&self, incoming: &ApiRequest) -> HandlerResult {
        let agent = self.agent(&self.offer(&incoming.caller.app), &incoming.segment)?;
        if agent.wires.is_empty() {
            return Err(response::error(Code::NotFound, &FrontError::grpc_alone().message));
        }
        let url = address(&self.base(&incoming.request), &agent.name);
        let card = agent.card(&url, false).ok_or_else(no_card)?;
        Ok(response::json_text(card))
    }

    async fn a2a_rpc(&self, mut incoming: ApiRequest) -> HandlerResult {
        let trace = self.trace_of(&incoming);
        let body = self.a2a_body(&mut incoming).await?;
        let app = Arc::clone(&incoming.caller.app);
        let size = body.len();
        let read = self.views.work_if_large(&app.name, size, move || request::read_rpc(&body));
        let RpcCall { form, request, is_stream } = read.await?;
        let (generation, request) = match request {
            Ok(read) => read,
            Err(error) => return Ok(reply::failure(&form, error, is_stream)),
        };
        let wire = A2aWire { binding: A2aBinding::JsonRpc, generation };
        let client = self.client(&incoming, wire, form, trace)?;
        Ok(client.answer(request, is_stream).await)
    }

    async fn a2a_rest(
        &self,
        mut incoming: ApiRequest,
        generation: Generation,
        operation: Operation,
    ) -> HandlerResult {
        let trace = self.trace_of(&incoming);
        let body = self.a2a_body(&mut incoming).await?;
        let query = incoming.request.uri().query().unwrap_or_default().to_owned();
        let app = Arc::clone(&incoming.caller.app);
        let size = body.len();
        let is_stream = matches!(operation, Operation::Stream | Operation::Subscribe(_));
        let read = self.views.work_if_large(&app.name, size, move || {
            request::read_rest(operation, generation, &query, &body)
        });
        let form = ReplyForm::HttpJson(generation);
        let request = match read.await? {
            Ok(request) => request,
            Err(error) => return Ok(reply::failure(&form, error, is_stream)),
        };
        let wire = A2aWire { binding: A2aBinding::HttpJson, generation };
        let client = self.client(&incoming, wire, form, trace)?;
        Ok(client.answer(request, is_stream).await)
    }

    /// The body, which is there before its caller is authenticated once more.
    async fn a2a_body(&self, incoming: &mut ApiRequest) -> HandlerResult<Bytes> {
        if *incoming.request.method() != Method::POST {
            return Ok(Bytes::new());
        }
        let body = response::read(incoming.request.body_mut(), MAX_CALL).await?;
        self.renew(incoming)?;
        Ok(body)
    }

    fn trace_of(&self, incoming: &ApiRequest) -> Context {
        self.runs.context.traces.context(proxy::trace(incoming.request.headers()))
    }

    fn client(
        &self,
        incoming: &ApiRequest,
        wire: A2aWire,
        form: ReplyForm,
        trace: Context,
    ) -> HandlerResult<Client> {
        let app = Arc::clone(&incoming.caller.app);
        let agent = self.agent(&self.offer(&app), &incoming.segment)?;
        let url = address(&self.base(&incoming.request), &agent.name);
        Ok(Client { api: self.clone(), app, agent, wire, form, trace, url })
    }

    /// The agent that a path names, if it is in `offer`.
    fn agent(&self, offer: &Arc<Offer>, name: &str) -> HandlerResult<Agent> {
        let is_agent = |name: &str| {
            offer.backend(name).is_some_and(|offered| offered.kind == RefKind::A2aLocal)
        };
        let agents = offer.backends().map(|(name, _)| name.clone());
        let agents = agents.filter(|name| is_agent(name.as_str())).collect();
        let named = offer.backends().find(|(agent, _)| agent.as_str() == name && is_agent(name));
        let Some((name, offered)) = named else { return Err(no_backend(name.to_owned(), &agents)) };
        let tool = offered.refs().chain(offered.hidden()).flat_map(|one| one.names()).next();
        let route = tool.and_then(|tool| offer.searched_route(tool));
        let registry = &self.backends().registry;
        let catalog = registry.snapshot(name.as_str()).and_then(|backend| backend.catalog);
        let (Some(tool), Some(route), Some(catalog)) = (tool, route, catalog) else {
            return Err(no_card());
        };
        if matches!(route.target, Target::Stub) {
            return Err(no_card());
        }
        let wires = match registry.connection(name) {
            Some(connection) => connection.peer.wires(),
            None => catalog.public_card().map(card::named_wires).unwrap_or_default(),
        };
        Ok(Agent {
            name: name.clone(),
            tool: tool.to_string(),
            route: route.clone(),
            catalog,
            wires,
        })
    }

    /// The address of the bridge, as the client wrote it. A proxy that ends TLS before the bridge
    /// says so.
    fn base(&self, request: &Request<Incoming>) -> String {
        let headers = request.headers();
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host = request.uri().authority().map(http::uri::Authority::as_str);
        let host = host.or_else(|| text(header::HOST)).unwrap_or("localhost");
        let forwarded = header::HeaderName::from_static("x-forwarded-proto");
        let is_encrypted =
            self.facts.tls.is_some() || text(forwarded).is_some_and(|scheme| scheme == "https");
        format!("{}://{host}", if is_encrypted { "https" } else { "http" })
    }
}

impl Agent {
    /// The card, or the extended one, for clients of the bridge.
    fn card(&self, url: &str, is_extended: bool) -> Option<String> {
        let extended = self.catalog.extended_card();
        let card = if is_extended { extended } else { self.catalog.public_card() };
        let view = CardView { url, wires: &self.wires, has_extended_card: extended.is_some() };
        view.write(card?)
    }
}

impl Client {
    async fn answer(self, request: FrontRequest, is_stream: bool) -> Response<Body> {
        if self.agent.wires.is_empty() {
            return reply::failure(&self.form, FrontError::grpc_alone(), is_stream);
        }
        if !self.agent.wires.contains(&self.wire) {
            let error = FrontError::other_version(self.wire.generation);
            return reply::failure(&self.form, error, is_stream);
        }
        match request {
            FrontRequest::Send(message) => self.send(message, false).await,
            FrontRequest::Stream(message) => self.send(message, true).await,
            FrontRequest::GetTask(params) => self.get_task(params).await,
            FrontRequest::CancelTask(params) => self.cancel_task(params).await,
            FrontRequest::Subscribe(task) => self.subscribe(task).await,
            FrontRequest::ListTasks(_) if self.wire.generation == Generation::V03 => {
                reply::failure(&self.form, FrontError::no_list(self.wire.binding), false)
            }
            FrontRequest::ListTasks(params) => self.list_tasks(params).await,
            FrontRequest::ExtendedCard => match self.agent.card(&self.url, true) {
                Some(card) => response::json_text(self.form.result(&card)),
                None => reply::failure(&self.form, FrontError::no_extended_card(), false),
            },
        }
    }
}

/// The agent's address at the bridge.
fn address(base: &str, agent: &BackendName) -> String {
    format!("{base}/a2a/{agent}")
}

/// The bridge has no card of the agent that it may show.
fn no_card() -> Response<Body> {
    let why = "The agent is not on offer now: its card was not read yet, or is not accepted.";
    let error = response::error(Code::BackendUnavailable, why);
    response::with_status(error, StatusCode::SERVICE_UNAVAILABLE)
}
