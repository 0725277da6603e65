//! The client's executable.

mod connection;
mod connector;
mod spawn;

use std::{env, process::ExitCode, time::Duration};

use lm_proto::{DataDirectory, message::Ask};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use connector::{Connector, Drained, Role};

#[allow(clippy::print_stdout, clippy::print_stderr)]
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let connector = Connector::new(DataDirectory::open()?);
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ask", question] => {
            let cwd = env::current_dir()?.to_string_lossy().into_owned();
            let environment = vec![];
            let ask = Ask { question: question.into(), cwd, max_answer_tokens: None, timeout_s: None, environment };
            let answer = connector.ask(Role::Ask, ask, |_| {}, &CancellationToken::new()).await?;
            println!("{}", answer.text);
        }
        ["stats"] => {
            let connection = connector.connect(Role::Stats, Instant::now() + Duration::from_secs(5)).await?;
            println!("{:?}", connection.daemon());
        }
        ["stop"] => match connector.drain(Instant::now() + Duration::from_secs(10)).await? {
            Drained::Left => println!("stopped"),
            Drained::WasNotRunning => println!("not running"),
        },
        _ => return Ok(ExitCode::from(2)),
    }
    Ok(ExitCode::SUCCESS)
}
