//! nginx as a plain reverse proxy, where it is installed.
//!
//! Must not: use anything of the machine's own nginx but the program.

use std::{fs, net::SocketAddr, path::Path, process::Stdio, time::Duration};

use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::sleep,
};

use crate::{clock, process::PATIENCE, run::Outcome};

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
        let addr = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let config = dir.join("nginx.conf");
        fs::write(&config, text(dir, addr, target))?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(dir).arg("-c").arg(&config).arg("-e").arg(dir.join("error.log"));
        let child = command.stdin(Stdio::null()).kill_on_drop(true).spawn()?;
        let mut nginx = Self { _child: child, addr };
        let end = clock::now() + PATIENCE.as_nanos() as u64;
        while TcpStream::connect(addr).await.is_err() {
            if nginx._child.try_wait()?.is_some() || clock::now() > end {
                let log = fs::read_to_string(dir.join("error.log")).unwrap_or_default();
                return Err(format!("nginx does not start: {log}").into());
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(Some(nginx))
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
