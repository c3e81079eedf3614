//! The tools that take long. They run as tasks if the client supports tasks, and otherwise as plain tools.

use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use everlink::protocol::{ClientFeature, ServerFeature, code};
use everlink::{ErrorObject, Payload};
use everlink_tokio::secret;
use everlink_tools::types::{CallToolResult, ElicitResult};
use everlink_tools::{Context, Error, JsonSchema, Reply, Result, Tools, form};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::rounds::{Name, ask_name};

/// The time for which a task is kept.
const TTL: Duration = Duration::from_secs(600);

/// The poll interval that clients are told.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Arguments {
    name: Option<String>,
    seconds: Option<f64>,
    label: Option<String>,
    filename: Option<String>,
}

/// A form for the user.
#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Confirmation {
    confirm: bool,
}

pub(super) fn add_to(tools: Tools) -> Tools {
    let tasks = Arc::<Tasks>::default();
    let jobs = [
        ("slow_compute", "Takes this many seconds", Job::Compute),
        ("failing_job", "Takes a second, and fails", Job::Fail),
        (
            "protocol_error_job",
            "Fails with a protocol error",
            Job::Break,
        ),
        (
            "confirm_delete",
            "Asks the user while it runs",
            Job::Confirm,
        ),
        (
            "multi_input",
            "Asks the user two questions while it runs",
            Job::ConfirmTwice,
        ),
        ("test_tool_with_task", "Asks the user first", Job::Greet),
    ];
    let tools = tools.with_feature(ServerFeature::TasksExtension).tool(
        "greet",
        "Greets at once",
        async |args: Arguments, _| Ok(format!("Hello, {}!", args.name.unwrap_or_default())),
    );
    let tools = jobs
        .into_iter()
        .fold(tools, |tools, (name, description, job)| {
            let tasks = Arc::clone(&tasks);
            tools.tool(name, description, move |args, context| {
                call(job, args, context, Arc::clone(&tasks))
            })
        });
    let [getter, canceller, updater] = [(); 3].map(|()| Arc::clone(&tasks));
    tools
        .method("tasks/get", move |params, _| ready(getter.get(params)))
        .method("tasks/cancel", move |params, _| {
            ready(canceller.cancel(params))
        })
        .method("tasks/update", move |params, _| {
            ready(updater.update(params))
        })
}

async fn call(job: Job, args: Arguments, context: Context, tasks: Arc<Tasks>) -> Result<Reply> {
    if let Job::Fail | Job::Greet = job {
        // These two run only as tasks.
        context.require(ClientFeature::TasksExtension)?;
    }
    let name = context.accepted::<Name>("user_name").map(|it| it.name);
    if let (Job::Greet, None) = (job, &name) {
        return ask_name();
    }
    let args = Arguments { name, ..args };
    if context.declares(ClientFeature::TasksExtension) {
        return Ok(Payload::of(&tasks.start(job, args))?.into());
    }
    Ok(job.run(args, &Asker::Client(&context)).await?.into())
}

/// The work of a task.
#[derive(Clone, Copy)]
enum Job {
    Break,
    Compute,
    Confirm,
    ConfirmTwice,
    Fail,
    Greet,
}

impl Job {
    async fn run(self, args: Arguments, asker: &Asker<'_>) -> Result<CallToolResult> {
        let text = match self {
            Job::Break => return Err(internal("the job failed")),
            Job::Compute => {
                let seconds = args.seconds.unwrap_or(1.0);
                sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default()).await;
                "It is computed.".to_owned()
            }
            Job::Confirm => format!("The user says {:?}.", asker.ask("Delete it?").await?.action),
            Job::ConfirmTwice => {
                let (one, two) = tokio::join!(asker.ask("One?"), asker.ask("Two?"));
                format!("The user says {:?} and {:?}.", one?.action, two?.action)
            }
            Job::Fail => {
                sleep(Duration::from_secs(1)).await;
                return Ok(CallToolResult::error("The job always fails."));
            }
            Job::Greet => format!("Hello, {}!", args.name.unwrap_or_default()),
        };
        Ok(CallToolResult::new(vec![text.into()]))
    }
}

/// The way to ask the user.
enum Asker<'a> {
    /// With a request to the client.
    Client(&'a Context),
    /// In a task: the question is part of its state until it is answered.
    Task { tasks: &'a Tasks, id: &'a str },
}

impl Asker<'_> {
    async fn ask(&self, message: &str) -> Result<ElicitResult> {
        let form = form::<Confirmation>(message)?;
        match self {
            Asker::Client(context) => Ok(context.elicit_form(&form).await?),
            Asker::Task { tasks, id } => {
                let question = json!({"method": "elicitation/create", "params": form});
                Ok(tasks.ask(id, question)?.await?)
            }
        }
    }
}

/// All tasks.
#[derive(Default)]
struct Tasks {
    entries: Mutex<HashMap<String, TaskEntry>>,
    questions: AtomicU64,
}

/// The parameters of the methods of tasks.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskParams {
    task_id: String,
    #[serde(default)]
    input_responses: BTreeMap<String, Value>,
}

struct TaskEntry {
    created: SystemTime,
    updated: SystemTime,
    state: State,
}

enum State {
    Working(Working),
    Cancelled,
    Completed(CallToolResult),
    Failed(ErrorObject),
}

#[derive(Default)]
struct Working {
    worker: Option<AbortHandle>,
    /// The open questions by key, each with the sender for its answer.
    questions: BTreeMap<String, (Value, oneshot::Sender<ElicitResult>)>,
}

impl Tasks {
    /// Starts a task, and returns the description for the client.
    fn start(self: &Arc<Tasks>, job: Job, args: Arguments) -> Value {
        let id = format!("{:032x}", u128::from_le_bytes(secret()));
        let (task_id, tasks) = (id.clone(), Arc::clone(self));
        let mut entries = self.lock();
        // The lock is held while the worker starts, so that the worker finds its task.
        let worker = tokio::spawn(async move {
            let (tasks, id) = (&*tasks, &*task_id);
            let state = match job.run(args, &Asker::Task { tasks, id }).await {
                Ok(result) => State::Completed(result),
                Err(error) => State::Failed(error.into()),
            };
            tasks.settle(id, state);
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

    fn get(&self, params: TaskParams) -> Result<Value> {
        self.with_task(&params.task_id, |task| Ok(task.json(&params.task_id)))
    }

    fn cancel(&self, params: TaskParams) -> Result<Value> {
        self.with_task(&params.task_id, |task| {
            if let State::Working(working) = &task.state {
                if let Some(worker) = &working.worker {
                    worker.abort();
                }
                task.set_state(State::Cancelled);
            }
            Ok(json!({}))
        })
    }

    fn update(&self, params: TaskParams) -> Result<Value> {
        self.with_task(&params.task_id, |task| {
            task.updated = SystemTime::now();
            for (key, answer) in params.input_responses {
                if let State::Working(working) = &mut task.state
                    && let Some((_, asked)) = working.questions.remove(&key)
                {
                    // A worker that has ended needs no answer.
                    let _ = asked.send(serde_json::from_value(answer)?);
                }
            }
            Ok(json!({}))
        })
    }

    fn with_task<T>(
        &self,
        id: &str,
        function: impl FnOnce(&mut TaskEntry) -> Result<T>,
    ) -> Result<T> {
        let mut entries = self.lock();
        let task = entries.get_mut(id);
        function(task.ok_or_else(|| Error::invalid_params("there is no such task"))?)
    }

    /// Adds a question to a task.
    fn ask(&self, id: &str, question: Value) -> Result<oneshot::Receiver<ElicitResult>> {
        self.with_task(id, |task| {
            task.updated = SystemTime::now();
            let State::Working(working) = &mut task.state else {
                return Err(internal("the task has ended"));
            };
            let number = self.questions.fetch_add(1, Ordering::Relaxed);
            let (sender, answer) = oneshot::channel();
            working
                .questions
                .insert(format!("question-{number}"), (question, sender));
            Ok(answer)
        })
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
                json["result"] = json!(result);
                "completed"
            }
            State::Failed(error) => {
                json["error"] = json!(error);
                "failed"
            }
        };
        json["status"] = status.into();
        json
    }
}

fn internal(text: &str) -> Error {
    Error::protocol(ErrorObject::new(code::INTERNAL_ERROR, text))
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
