//! nginx as a plain reverse proxy, where it is installed.
//!
//! Must not: use anything of the machine's own nginx but the program.

use std::{fs, net::SocketAddr, path::Path, process::Stdio};

use tokio::process::{Child, Command};

use crate::{process, run::Outcome};

#[derive(Debug)]
pub(crate) struct Nginx {
    /// It ends with this.
    _child: Child,
    pub(crate) addr: SocketAddr,
}

impl Nginx {
    /// Starts it in `dir` in front of `target`; `None` where it is not installed.
    pub(crate) async fn start(dir: &Path, target: SocketAddr) -> Outcome<Option<Self>> {
        if Command::new("nginx").arg("-v").output().await.is_err() {
            return Ok(None);
        }
        fs::create_dir_all(dir)?;
        let addr = process::free_addr()?;
        let config = dir.join("nginx.conf");
        fs::write(&config, text(dir, addr, target))?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(dir).arg("-c").arg(&config).arg("-e").arg(dir.join("error.log"));
        let mut child = command.stdin(Stdio::null()).kill_on_drop(true).spawn()?;
        if !process::comes_to_listen(&mut child, addr).await? {
            let log = fs::read_to_string(dir.join("error.log")).unwrap_or_default();
            return Err(format!("nginx does not start: {log}").into());
        }
        Ok(Some(Self { _child: child, addr }))
    }
}

/// One process, so that it ends with our child; bodies are streamed, as the bridge does.
fn text(dir: &Path, addr: SocketAddr, target: SocketAddr) -> String {
    let dir = dir.display();
    format!(
        "daemon off;
master_process off;
pid {dir}/pid;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    keepalive_requests 1000000;
    upstream mantyx {{ server {target}; keepalive 64; keepalive_requests 1000000; }}
    server {{
        listen {addr};
        client_max_body_size 64m;
        client_body_buffer_size 1m;
        location / {{
            proxy_pass http://mantyx;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffering off;
            proxy_request_buffering off;
        }}
    }}
}}
"
    )
}
