//! The tools that take long. They run as tasks if the client supports tasks, and otherwise as plain tools.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use everlink::ErrorObject;
use everlink::protocol::{ClientFeature, code};
use everlink::server::missing_capability;
use everlink_tokio::secret;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::rounds::{self, form_with_field};
use super::tools::tool;
use super::{Answer, Invocation, internal, result, text, text_result};

/// The time for which a task is kept.
const TTL: Duration = Duration::from_secs(600);

/// The poll interval that clients are told.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(super) fn list() -> Vec<Value> {
    let seconds = json!({"seconds": {"type": "number"}, "label": {"type": "string"}});
    let schema = |properties: Value| json!({"type": "object", "properties": properties});
    vec![
        tool(
            "greet",
            "Greets, at once",
            schema(json!({"name": {"type": "string"}})),
        ),
        tool(
            "slow_compute",
            "Takes as long as it is told to",
            schema(seconds),
        ),
        tool(
            "failing_job",
            "Takes a second, and fails",
            schema(json!({})),
        ),
        tool("protocol_error_job", "Breaks down", schema(json!({}))),
        tool(
            "confirm_delete",
            "Asks the user in the middle",
            schema(json!({"filename": {"type": "string"}})),
        ),
        tool(
            "multi_input",
            "Asks the user two things in the middle",
            schema(json!({})),
        ),
        tool(
            "test_tool_with_task",
            "Asks the user first",
            schema(json!({})),
        ),
    ]
}

pub(super) fn is_task_tool(name: &str) -> bool {
    list().iter().any(|tool| tool["name"] == name)
}

pub(super) async fn call(invocation: Invocation, tasks: &Arc<Tasks>) -> Answer {
    let knows_tasks = invocation
        .peer
        .capabilities
        .declares(ClientFeature::TasksExtension);
    match &*invocation.name {
        "greet" => text(format!("Hello, {}!", invocation.argument("name"))),
        // These two run only as tasks.
        "failing_job" | "test_tool_with_task" if !knows_tasks => {
            Err(missing_capability(ClientFeature::TasksExtension))
        }
        "test_tool_with_task" if rounds::field(&invocation, "user_name", "name").is_none() => {
            rounds::form("user_name", "What is your name?", "name")
        }
        _ if knows_tasks => result(tasks.start(invocation)),
        _ => result(
            Job::of(&invocation)
                .run(&Asker::Client(&invocation))
                .await?,
        ),
    }
}

/// The work of a task.
struct Job {
    name: String,
    arguments: Value,
    user: String,
}

impl Job {
    fn of(invocation: &Invocation) -> Job {
        Job {
            name: invocation.name.clone(),
            arguments: invocation.arguments.clone(),
            user: rounds::field(invocation, "user_name", "name")
                .unwrap_or_default()
                .to_owned(),
        }
    }

    async fn run(self, asker: &Asker<'_>) -> Result<Value, ErrorObject> {
        match &*self.name {
            "slow_compute" => {
                let seconds = self.arguments["seconds"].as_f64().unwrap_or(1.0);
                sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default()).await;
                Ok(text_result("It is computed."))
            }
            "failing_job" => {
                sleep(Duration::from_secs(1)).await;
                let mut result = text_result("It could not be done.");
                result["isError"] = true.into();
                Ok(result)
            }
            "confirm_delete" => {
                let answer = asker.ask("Is it to be deleted?").await?;
                Ok(text_result(format!("The user says {}.", answer["action"])))
            }
            "multi_input" => {
                let (one, two) = tokio::join!(asker.ask("One?"), asker.ask("Two?"));
                Ok(text_result(format!(
                    "The user says {} and {}.",
                    one?["action"], two?["action"]
                )))
            }
            "test_tool_with_task" => Ok(text_result(format!("Hello, {}!", self.user))),
            _ => Err(internal("it broke down")),
        }
    }
}

/// The way to ask the user.
enum Asker<'a> {
    /// With a request to the client.
    Client(&'a Invocation),
    /// In a task: the question is part of its state until it is answered.
    Task { tasks: &'a Tasks, id: &'a str },
}

impl Asker<'_> {
    async fn ask(&self, message: &str) -> Result<Value, ErrorObject> {
        let form = form_with_field(message, "confirm", "boolean");
        match self {
            Asker::Client(invocation) => invocation.ask("elicitation/create", form).await,
            Asker::Task { tasks, id } => {
                let question = json!({"method": "elicitation/create", "params": form});
                let answer = tasks
                    .ask(id, question)
                    .ok_or_else(|| internal("it is over"))?;
                answer.await.map_err(internal)
            }
        }
    }
}

/// All tasks.
#[derive(Default)]
pub(super) struct Tasks {
    entries: Mutex<HashMap<String, TaskEntry>>,
    questions: AtomicU64,
}

struct TaskEntry {
    created: SystemTime,
    updated: SystemTime,
    state: State,
}

enum State {
    Working(Working),
    Cancelled,
    Completed(Value),
    Failed(ErrorObject),
}

#[derive(Default)]
struct Working {
    worker: Option<AbortHandle>,
    /// The open questions by key, each with the sender for its answer.
    questions: BTreeMap<String, (Value, oneshot::Sender<Value>)>,
}

impl Tasks {
    /// Starts a task, and returns the description for the client.
    fn start(self: &Arc<Tasks>, invocation: Invocation) -> Value {
        let id = u128::from_le_bytes(secret());
        let (id, tasks, job) = (format!("{id:032x}"), Arc::clone(self), Job::of(&invocation));
        let mut entries = self.lock();
        // The lock is held while the worker starts, so that the worker finds its task.
        let worker = tokio::spawn({
            let id = id.clone();
            async move {
                let asker = Asker::Task {
                    tasks: &tasks,
                    id: &id,
                };
                let state = match job.run(&asker).await {
                    Ok(result) => State::Completed(result),
                    Err(error) => State::Failed(error),
                };
                tasks.settle(&id, state);
            }
        });
        let now = SystemTime::now();
        entries.retain(|_, task| now.duration_since(task.created).is_ok_and(|age| age < TTL));
        let working = Working {
            worker: Some(worker.abort_handle()),
            ..Working::default()
        };
        let task = TaskEntry {
            created: now,
            updated: now,
            state: State::Working(working),
        };
        let mut json = task.json(&id);
        json["resultType"] = "task".into();
        entries.insert(id, task);
        json
    }

    pub(super) fn get(&self, params: &Value) -> Answer {
        let (id, entries) = (task_id(params), self.lock());
        result(entries.get(id).ok_or_else(unknown)?.json(id))
    }

    pub(super) fn cancel(&self, params: &Value) -> Answer {
        let (id, mut entries) = (task_id(params), self.lock());
        let task = entries.get_mut(id).ok_or_else(unknown)?;
        if let State::Working(working) = &task.state {
            if let Some(worker) = &working.worker {
                worker.abort();
            }
            task.set_state(State::Cancelled);
        }
        result(json!({}))
    }

    pub(super) fn update(&self, params: &Value) -> Answer {
        let answers = params["inputResponses"].as_object();
        let mut entries = self.lock();
        let task = entries.get_mut(task_id(params)).ok_or_else(unknown)?;
        task.updated = SystemTime::now();
        if let State::Working(working) = &mut task.state {
            for (key, answer) in answers.into_iter().flatten() {
                if let Some((_, asked)) = working.questions.remove(key) {
                    // A worker that has ended needs no answer.
                    let _ = asked.send(answer.clone());
                }
            }
        }
        result(json!({}))
    }

    /// Adds a question to a task. Returns `None` if the task has ended.
    fn ask(&self, id: &str, question: Value) -> Option<oneshot::Receiver<Value>> {
        let mut entries = self.lock();
        let task = entries.get_mut(id)?;
        task.updated = SystemTime::now();
        let State::Working(working) = &mut task.state else {
            return None;
        };
        let key = format!(
            "question-{}",
            self.questions.fetch_add(1, Ordering::Relaxed)
        );
        let (sender, answer) = oneshot::channel();
        working.questions.insert(key, (question, sender));
        Some(answer)
    }

    fn settle(&self, id: &str, state: State) {
        if let Some(task) = self.lock().get_mut(id) {
            if let State::Working(_) = task.state {
                task.set_state(state);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, TaskEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TaskEntry {
    fn set_state(&mut self, state: State) {
        self.updated = SystemTime::now();
        self.state = state;
    }

    /// The description for the client.
    fn json(&self, id: &str) -> Value {
        let mut json = json!({
            "taskId": id,
            "createdAt": iso8601(self.created),
            "lastUpdatedAt": iso8601(self.updated),
            "ttlMs": TTL.as_millis() as u64,
            "pollIntervalMs": POLL_INTERVAL.as_millis() as u64,
        });
        let status = match &self.state {
            State::Working(working) if working.questions.is_empty() => "working",
            State::Working(working) => {
                let questions = working.questions.iter();
                json["inputRequests"] = questions
                    .map(|(key, (question, _))| (key.clone(), question.clone()))
                    .collect();
                "input_required"
            }
            State::Cancelled => "cancelled",
            State::Completed(result) => {
                json["result"] = result.clone();
                "completed"
            }
            State::Failed(error) => {
                json["error"] = json!({"code": error.code, "message": error.text()});
                "failed"
            }
        };
        json["status"] = status.into();
        json
    }
}

fn task_id(params: &Value) -> &str {
    params["taskId"].as_str().unwrap_or_default()
}

fn unknown() -> ErrorObject {
    ErrorObject::new(code::INVALID_PARAMS, "there is no such task")
}

/// Formats a time as ISO 8601.
fn iso8601(time: SystemTime) -> String {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (mut year, mut day) = (1970, days);
    let length = |year: u64| {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        365 + u64::from(is_leap)
    };
    while day >= length(year) {
        day -= length(year);
        year += 1;
    }
    let february = length(year) - 337;
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let day = day + 1;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_time_is_formatted_as_iso_8601() {
        let at = |seconds| iso8601(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_798_761_599), "2026-12-31T23:59:59Z");
    }
}
