//! What a person adds to every request.

use lm_core::llm::{ApiKey, Extras, ModelSettings, Provider, Timeouts, connect};
use lm_tests::{
    ModelServer,
    model_server::{Script, SeenRequest, Turn},
};
use serde_json::{Value, json};

use super::{BOTH, CANARY, ask, transport};

fn settings(server: &ModelServer, provider: Provider, body: &Value, headers: &[(&str, &str)]) -> ModelSettings {
    let extras = Extras::new(body.as_object(), headers.iter().copied(), None).unwrap_or_else(|error| panic!("{error}"));
    let model = provider.default_model(None).map(str::to_owned);
    ModelSettings { provider, base_url: Some(server.url()), api_key: ApiKey::new(CANARY).ok(), model, extras }
}

/// The requests that two questions with these extras make.
async fn requests(provider: Provider, body: Value, headers: &[(&str, &str)]) -> Vec<SeenRequest> {
    let server = ModelServer::start(Script::new([Turn::text("x"), Turn::text("x")]));
    let client = connect(&settings(&server, provider, &body, headers), &transport(Timeouts::default())).unwrap();
    for _ in 0..2 {
        ask(&*client).await.0.unwrap();
    }
    server.requests()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_are_added_replaced_and_left_out() {
    let body =
        json!({ "seed": 7, "max_completion_tokens": 99, "stream_options": null, "provider": { "sort": "price" } });
    for request in requests(Provider::OpenAi, body, &[]).await {
        let json = request.json();
        assert_eq!((&json["seed"], &json["provider"]["sort"]), (&json!(7), &json!("price")));
        assert_eq!(json["max_completion_tokens"], 99);
        assert!(json.get("max_tokens").is_none() && json.get("stream_options").is_none(), "{json}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_are_added_and_automatic_ids_are_new_each_time() {
    for provider in BOTH {
        let headers = [("X-Trace", "__auto__"), ("x-team", "memory"), ("anthropic-version", "2023-01-01")];
        let requests = requests(provider, json!({}), &headers).await;
        let [first, second] = &requests[..] else { panic!("{requests:?}") };
        assert_eq!(first.header("x-team"), Some("memory"));
        assert_eq!(first.header("anthropic-version"), Some("2023-01-01"), "in place of ours");
        let ids = [first, second].map(|request| request.header("x-trace").unwrap());
        assert!(ids[0] != ids[1] && ids[0].len() == 32, "{ids:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_among_them_goes_alone_and_is_never_repeated() {
    for provider in BOTH {
        for name in ["authorization", "x-api-key"] {
            let secret = "Bearer canary-of-a-gateway";
            let message = format!("bad credential {secret}");
            let server =
                ModelServer::start(Script::new([Turn::text("x"), Turn::status(401, "authentication_error", &message)]));
            let settings = settings(&server, provider, &json!({}), &[(name, secret)]);
            let client = connect(&settings, &transport(Timeouts::default())).unwrap();
            ask(&*client).await.0.unwrap();
            // `ask` looks for the canary; that both are not sent the server checks.
            let error = ask(&*client).await.0.unwrap_err().to_string();
            assert!(error.contains("[secret]"), "{error}");
        }
    }
}
