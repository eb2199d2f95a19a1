//! A local tool that is a program. Each call starts it and writes the arguments to its stdin. When
//! the call ends or is dropped, the program and everything that it has started are ended.
//!
//! Must not: use a shell, or keep more of a program's output than is passed on.

use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::Child as Process;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::text;
use crate::backend::diagnosis::{End, Evidence, Variables, diagnosis};
use crate::backend::log::{Redactor, SEEN, printable_lines};
use crate::backend::program::hiding::Exposure;
use crate::backend::program::{Group, Started, describe, hiding, launcher};
use crate::backend::{CallError, Called, NotRead, ToolCall, program};
use crate::budget::{Buffer, NoRoom};
use crate::config::Program;
use crate::error_chain::error_chain;
use crate::model::sentences;
use crate::model::{Answer, BackendName};

/// The longest output, in bytes. MANTYX takes a quarter of this as a result.
const MAX_OUTPUT: usize = 8 * 1024 * 1024;
/// The most bytes of output that are read at once.
const MAX_CHUNK: usize = 16 * 1024;
/// How many bytes of stderr are shown: its end, where programs say why they failed.
const MAX_STDERR: usize = 4 * 1024;
/// How long a program has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// How long the bridge reads output after the program's end. Processes that the program has left in
/// the background may hold the pipes open for ever.
const LINGER: Duration = Duration::from_millis(500);

/// Runs one program, as often as it is called.
#[derive(Debug)]
pub(crate) struct Runner {
    name: BackendName,
    program: Program,
    launcher: Option<PathBuf>,
    /// Ends all programs that run.
    stop: CancellationToken,
    /// Waits for each program's end, also when its call is gone.
    running: TaskTracker,
}

/// Why the bridge stops reading output.
enum Stopped {
    /// The output is longer than [`MAX_OUTPUT`].
    Flood,
    /// The budget for bodies has no room for more.
    NoRoom,
}

/// What a program has written.
struct Output {
    bytes: Buffer,
    /// More was read, and waits for room.
    is_waiting: bool,
}

/// The end of a stream, at most [`SEEN`] bytes, and how long all of it was.
#[derive(Debug, Default)]
struct Tail {
    kept: Vec<u8>,
    size: usize,
}

impl Runner {
    pub(crate) fn new(name: BackendName, program: Program, launcher: Option<PathBuf>) -> Self {
        let running = TaskTracker::new();
        Self { name, program, launcher, stop: CancellationToken::new(), running }
    }

    /// Why the program can read files of the bridge, if it can.
    pub(super) fn exposure(&self) -> Option<Exposure> {
        hiding::exposure(&self.program, hiding::known()?)
    }

    /// Runs the program once for a call.
    pub(super) async fn call(&self, call: &ToolCall) -> Called {
        self.run(call.request.arguments.get(), &call.progress.redactor).await
    }

    /// Runs the program once for something else than a call.
    pub(crate) async fn run_alone(&self, input: &str) -> Called {
        self.run(input, &Redactor::default()).await
    }

    /// Runs the program once, with `input` on its stdin. Dropping the future ends it, and all that
    /// it has started.
    async fn run(&self, input: &str, redactor: &Redactor) -> Called {
        let started = program::start(&self.program, self.launcher.as_deref()).await;
        let Started { mut process, group, coverage: _ } = started.map_err(|error| {
            let cure = error.own_cure().map(|cure| format!("; {cure}")).unwrap_or_default();
            CallError::NotSent(format!("{}{cure}", error_chain(&error)))
        })?;
        tracing::debug!(backend = %self.name, pid = group.leader(), "started the program");
        let stdin = process.stdin.take().expect("stdin was asked for as a pipe");
        let stdout = process.stdout.take().expect("stdout was asked for as a pipe");
        let stderr = process.stderr.take().expect("stderr was asked for as a pipe");
        let stop = self.stop.child_token();
        let _end_with_this_call = stop.clone().drop_guard();
        let (tell, mut ended) = oneshot::channel();
        // The handle is not needed: the tracker knows the task.
        drop(self.running.spawn(watch(process, group, stop, tell)));

        let mut output = Output { bytes: Buffer::new(0), is_waiting: false };
        let mut errors = Tail::default();
        let exchange = async {
            tokio::try_join!(
                feed(stdin, input),
                read_whole(stdout, &mut output),
                read_tail(stderr, &mut errors),
            )
        };
        // The future holds the buffers, and it ends before they are looked at.
        let outcome = {
            let mut exchange = pin!(exchange);
            tokio::select! {
                exchanged = &mut exchange => match exchanged {
                    Ok(_) => Ok(ended.await),
                    Err(stopped) => Err(stopped),
                },
                status = &mut ended => match timeout(LINGER, exchange).await {
                    Ok(Err(stopped)) => Err(stopped),
                    Ok(Ok(_)) | Err(_) => Ok(status),
                },
            }
        };
        let status = match outcome {
            Err(Stopped::Flood) => {
                let most = MAX_OUTPUT >> 20;
                let flood = sentences::output_too_large(&self.name, most);
                return Ok(Answer::Error(flood));
            }
            Err(Stopped::NoRoom) => return Err(NotRead::NoRoom(NoRoom).into()),
            Ok(_) if output.is_waiting => return Err(NotRead::NoRoom(NoRoom).into()),
            Ok(status) => status,
        };
        if self.stop.is_cancelled() {
            return Err(CallError::Lost("the bridge stopped the program".to_owned()));
        }
        let status = status
            .unwrap_or_else(|_gone| Err(io::Error::other("nobody has waited for its end")))
            .map_err(|error| CallError::Lost(format!("its end is not known: {error}")))?;
        let secrets = Arc::clone(&self.program.secrets);
        let redactor = Redactor { secrets, ..redactor.clone() };
        self.answer(status, &output.bytes.into_bytes(), &errors, &redactor)
    }

    fn answer(
        &self,
        status: ExitStatus,
        output: &[u8],
        errors: &Tail,
        redactor: &Redactor,
    ) -> Called {
        let said = printable_lines(&redactor.tail(&errors.kept, MAX_STDERR));
        if self.launcher.is_some() && launcher::could_not_start(status, &errors.kept) {
            return Err(CallError::NotSent(self.not_started(status, &said).unwrap_or(said)));
        }
        if !said.is_empty() {
            let line = said.replace('\n', " | ");
            tracing::info!(backend = %self.name, status = describe(status), "stderr: {line}");
        }
        if !status.success() {
            let missing = errors.size.saturating_sub(MAX_STDERR);
            return Ok(Answer::Error(match (said.is_empty(), missing) {
                (true, _) => {
                    let status = describe(status);
                    format!("`{}` failed with {status} and did not say why.", self.name)
                }
                (false, 0) => said,
                (false, missing) => format!("[{missing} bytes before]\n{said}"),
            }));
        }
        let output = output.strip_suffix(b"\n").unwrap_or(output);
        Ok(match text(output, true) {
            Some(text) => Answer::text(text),
            None => {
                let bytes = output.len();
                let no_text = sentences::output_not_text(&self.name, bytes);
                Answer::Error(no_text)
            }
        })
    }

    /// Why the launcher could not become the program, which is all that `stderr` says.
    fn not_started(&self, status: ExitStatus, stderr: &str) -> Option<String> {
        let stderr: Vec<String> = stderr.lines().map(str::to_owned).collect();
        let diagnosis = diagnosis(&Evidence {
            program: &self.program,
            end: End::from(Ok(status)),
            stderr: &stderr,
            stdout: &[],
            stray_id: None,
            worked: false,
            variables: Variables::default(),
        })?;
        Some(format!("{diagnosis}; {}", diagnosis.cause.cure(&self.program)))
    }

    /// Ends all programs that run.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.running.close();
        self.running.wait().await;
    }
}

/// Waits for the program's end, which `stop` hastens, tells how it ended, and ends what it has left
/// behind once `stop` says that nobody reads its output any more.
async fn watch(
    mut process: Process,
    group: Arc<Group>,
    stop: CancellationToken,
    tell: oneshot::Sender<io::Result<ExitStatus>>,
) {
    let by_itself = tokio::select! {
        status = process.wait() => Some(status),
        () = stop.cancelled() => None,
    };
    let leftovers = by_itself.is_some() && !group.is_empty();
    if let Some(status) = by_itself {
        // The call may be gone.
        let _gone = tell.send(status);
        if !leftovers {
            // The group's number may soon belong to another group, so never signal it again.
            group.forget();
        }
        // What it has left in the background may be writing its output.
        stop.cancelled().await;
    }
    if group.is_forgotten() {
        group.kill();
        return group.detached_gone().await;
    }
    group.signal(Signal::TERM);
    let gently = async {
        // Reaps the program; its status is not needed any more.
        drop(process.wait().await);
        group.emptied().await;
    };
    if timeout(GRACE, gently).await.is_ok() {
        group.forget();
    }
    group.kill();
    drop(process.wait().await);
    group.detached_gone().await;
}

/// Writes the arguments and closes stdin. A program need not read them.
async fn feed(mut stdin: impl AsyncWrite + Unpin, arguments: &str) -> Result<(), Stopped> {
    let line = [arguments.as_bytes(), b"\n"].concat();
    let _taken = stdin.write_all(&line).await.is_ok() && stdin.shutdown().await.is_ok();
    Ok(())
}

/// Reads all of `from`, up to [`MAX_OUTPUT`].
async fn read_whole(mut from: impl AsyncRead + Unpin, to: &mut Output) -> Result<(), Stopped> {
    let mut chunk = vec![0; MAX_CHUNK];
    // What was read before an error stays.
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        if to.bytes.len() + read > MAX_OUTPUT {
            return Err(Stopped::Flood);
        }
        to.is_waiting = true;
        let piece = chunk.get(..read).unwrap_or_default();
        to.bytes.push(piece).await.map_err(|NoRoom| Stopped::NoRoom)?;
        to.is_waiting = false;
    }
    Ok(())
}

/// Reads all of `from` and keeps its end, longer than what is shown: a secret is found only whole.
async fn read_tail(mut from: impl AsyncRead + Unpin, to: &mut Tail) -> Result<(), Stopped> {
    let mut chunk = vec![0; MAX_CHUNK];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        to.kept.extend_from_slice(chunk.get(..read).unwrap_or_default());
        to.kept.drain(..to.kept.len().saturating_sub(SEEN));
        to.size += read;
    }
    Ok(())
}
