//! A fast MCP server on stdin and stdout.
//!
//! Each answer is a write of its own, and the time of a request is that of the read which brought
//! its last byte. Must not: start a runtime's thread for stdin, which a reader of tokio's would be.

use std::io::{Read as _, Write as _};

use super::tools;
use crate::{clock, run::Outcome};

#[expect(clippy::unused_async, reason = "a role like the others; it has its process for itself")]
pub(super) async fn play() -> Outcome<()> {
    let (mut stdin, mut stdout) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut buffer = vec![0; 64 * 1024];
    let mut pending = Vec::new();
    loop {
        let read = stdin.read(&mut buffer)?;
        let came = clock::now();
        if read == 0 {
            return Ok(());
        }
        pending.extend_from_slice(buffer.get(..read).unwrap_or_default());
        let mut begun = 0;
        while let Some(length) =
            pending.get(begun..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
        {
            let line = pending.get(begun..begun + length).unwrap_or_default();
            if let Some(mut answer) = tools::mcp(line, came, 0) {
                answer.push('\n');
                stdout.write_all(answer.as_bytes())?;
                stdout.flush()?;
            }
            begun += length + 1;
        }
        pending.drain(..begun);
    }
}
