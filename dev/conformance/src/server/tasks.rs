//! The tools that take their time. Where a client knows tasks, they run as such, and it asks after them; for the others, they are plain tools.

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

use super::rounds::{self, one_field};
use super::tools::tool;
use super::{Order, Said, internal, result, said, text};

/// How long a task is held.
const HELD: Duration = Duration::from_secs(600);

/// How often to ask after a task.
const POLL: Duration = Duration::from_millis(100);

pub(super) fn list() -> Vec<Value> {
    let seconds = json!({"seconds": {"type": "number"}, "label": {"type": "string"}});
    let of = |properties: Value| json!({"type": "object", "properties": properties});
    vec![
        tool(
            "greet",
            "Greets, at once",
            of(json!({"name": {"type": "string"}})),
        ),
        tool(
            "slow_compute",
            "Takes as long as it is told to",
            of(seconds),
        ),
        tool("failing_job", "Takes a second, and fails", of(json!({}))),
        tool("protocol_error_job", "Breaks down", of(json!({}))),
        tool(
            "confirm_delete",
            "Asks the user in the middle",
            of(json!({"filename": {"type": "string"}})),
        ),
        tool(
            "multi_input",
            "Asks the user two things in the middle",
            of(json!({})),
        ),
        tool("test_tool_with_task", "Asks the user first", of(json!({}))),
    ]
}

pub(super) fn is_one(name: &str) -> bool {
    list().iter().any(|tool| tool["name"] == name)
}

pub(super) async fn call(order: Order, tasks: &Arc<Tasks>) -> Said {
    let knows_tasks = order
        .peer
        .capabilities
        .declares(ClientFeature::TasksExtension);
    match &*order.name {
        "greet" => text(format!("Hello, {}!", order.argument("name"))),
        // These two run as tasks or not at all.
        "failing_job" | "test_tool_with_task" if !knows_tasks => {
            Err(missing_capability(ClientFeature::TasksExtension))
        }
        "test_tool_with_task" if rounds::field(&order, "user_name", "name").is_none() => {
            rounds::form("user_name", "What is your name?", "name")
        }
        _ if knows_tasks => result(tasks.begin(order)),
        _ => result(Job::of(&order).run(&Asker::Client(&order)).await?),
    }
}

/// What is to be done.
struct Job {
    name: String,
    arguments: Value,
    user: String,
}

impl Job {
    fn of(order: &Order) -> Job {
        Job {
            name: order.name.clone(),
            arguments: order.arguments.clone(),
            user: rounds::field(order, "user_name", "name")
                .unwrap_or_default()
                .to_owned(),
        }
    }

    async fn run(self, asker: &Asker<'_>) -> Result<Value, ErrorObject> {
        match &*self.name {
            "slow_compute" => {
                let seconds = self.arguments["seconds"].as_f64().unwrap_or(1.0);
                sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default()).await;
                Ok(said("It is computed."))
            }
            "failing_job" => {
                sleep(Duration::from_secs(1)).await;
                let mut result = said("It could not be done.");
                result["isError"] = true.into();
                Ok(result)
            }
            "confirm_delete" => {
                let answer = asker.ask("Is it to be deleted?").await?;
                Ok(said(format!("The user says {}.", answer["action"])))
            }
            "multi_input" => {
                let (one, two) = tokio::join!(asker.ask("One?"), asker.ask("Two?"));
                Ok(said(format!(
                    "The user says {} and {}.",
                    one?["action"], two?["action"]
                )))
            }
            "test_tool_with_task" => Ok(said(format!("Hello, {}!", self.user))),
            _ => Err(internal("it broke down")),
        }
    }
}

/// Who asks the user.
enum Asker<'a> {
    /// The request itself.
    Client(&'a Order),
    /// A task, in which the question stands until it is answered.
    Task { tasks: &'a Tasks, id: &'a str },
}

impl Asker<'_> {
    async fn ask(&self, message: &str) -> Result<Value, ErrorObject> {
        let form = one_field(message, "confirm", "boolean");
        match self {
            Asker::Client(order) => order.ask("elicitation/create", form).await,
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

/// The tasks that are held.
#[derive(Default)]
pub(super) struct Tasks {
    held: Mutex<HashMap<String, Held>>,
    questions: AtomicU64,
}

struct Held {
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
    /// What the client is asked, by key, and who waits for the answer.
    questions: BTreeMap<String, (Value, oneshot::Sender<Value>)>,
}

impl Tasks {
    /// Begins a task, and says what a client is told of it.
    fn begin(self: &Arc<Tasks>, order: Order) -> Value {
        let id = u128::from_le_bytes(secret());
        let (id, tasks, job) = (format!("{id:032x}"), Arc::clone(self), Job::of(&order));
        let mut held = self.lock();
        // Held while the worker is started, so that it finds its task.
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
        held.retain(|_, task| now.duration_since(task.created).is_ok_and(|age| age < HELD));
        let working = Working {
            worker: Some(worker.abort_handle()),
            ..Working::default()
        };
        let task = Held {
            created: now,
            updated: now,
            state: State::Working(working),
        };
        let mut told = task.told(&id);
        told["resultType"] = "task".into();
        held.insert(id, task);
        told
    }

    pub(super) fn look(&self, params: &Value) -> Said {
        let (id, held) = (named(params), self.lock());
        result(held.get(id).ok_or_else(unknown)?.told(id))
    }

    pub(super) fn cancel(&self, params: &Value) -> Said {
        let (id, mut held) = (named(params), self.lock());
        let task = held.get_mut(id).ok_or_else(unknown)?;
        if let State::Working(working) = &task.state {
            if let Some(worker) = &working.worker {
                worker.abort();
            }
            task.become_(State::Cancelled);
        }
        result(json!({}))
    }

    pub(super) fn update(&self, params: &Value) -> Said {
        let answers = params["inputResponses"].as_object();
        let mut held = self.lock();
        let task = held.get_mut(named(params)).ok_or_else(unknown)?;
        task.updated = SystemTime::now();
        if let State::Working(working) = &mut task.state {
            for (key, answer) in answers.into_iter().flatten() {
                if let Some((_, asked)) = working.questions.remove(key) {
                    // A worker that ended meanwhile needs no answer.
                    let _ = asked.send(answer.clone());
                }
            }
        }
        result(json!({}))
    }

    /// A task asks its client something. Nothing if it is over.
    fn ask(&self, id: &str, question: Value) -> Option<oneshot::Receiver<Value>> {
        let mut held = self.lock();
        let task = held.get_mut(id)?;
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
                task.become_(state);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn become_(&mut self, state: State) {
        self.updated = SystemTime::now();
        self.state = state;
    }

    /// What a client is told of it.
    fn told(&self, id: &str) -> Value {
        let mut told = json!({
            "taskId": id,
            "createdAt": written(self.created),
            "lastUpdatedAt": written(self.updated),
            "ttlMs": HELD.as_millis() as u64,
            "pollIntervalMs": POLL.as_millis() as u64,
        });
        let status = match &self.state {
            State::Working(working) if working.questions.is_empty() => "working",
            State::Working(working) => {
                let questions = working.questions.iter();
                told["inputRequests"] = questions
                    .map(|(key, (question, _))| (key.clone(), question.clone()))
                    .collect();
                "input_required"
            }
            State::Cancelled => "cancelled",
            State::Completed(result) => {
                told["result"] = result.clone();
                "completed"
            }
            State::Failed(error) => {
                told["error"] = json!({"code": error.code, "message": error.text()});
                "failed"
            }
        };
        told["status"] = status.into();
        told
    }
}

fn named(params: &Value) -> &str {
    params["taskId"].as_str().unwrap_or_default()
}

fn unknown() -> ErrorObject {
    ErrorObject::new(code::INVALID_PARAMS, "there is no such task")
}

/// A time as ISO 8601 has it.
fn written(time: SystemTime) -> String {
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
    fn times_are_written_as_everybody_reads_them() {
        let at = |seconds| written(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_798_761_599), "2026-12-31T23:59:59Z");
    }
}
