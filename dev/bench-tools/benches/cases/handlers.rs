//! One tool in three forms: a typed function, a handler with JSON values, and a handler with types for all messages.

use std::borrow::Cow;

use everlink::protocol::code;
use everlink::server::Request;
use everlink::{ErrorObject, Payload};
use everlink_handle::{Context, Response};
use everlink_tools::{Answering, JsonSchema, Tools};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[derive(Deserialize, JsonSchema)]
struct Asked {
    /// The city
    city: String,
    /// The number of days
    days: u32,
    /// Whether in degrees Celsius
    celsius: bool,
}

#[derive(Serialize, JsonSchema)]
struct Forecast {
    city: String,
    days: Vec<Day>,
}

#[derive(Serialize, JsonSchema)]
struct Day {
    high: f64,
    low: f64,
    sky: &'static str,
}

fn forecast(city: String, days: u32, is_celsius: bool) -> Forecast {
    let scale = |degrees: f64| match is_celsius {
        true => degrees,
        false => degrees * 1.8 + 32.0,
    };
    let days = (0..days).map(|day| Day {
        high: scale(20.5 + f64::from(day)),
        low: scale(11.25),
        sky: "cloudy",
    });
    let days = days.collect();
    Forecast { city, days }
}

/// A set of ten tools, of which one is called.
pub(super) fn typed() -> impl Fn(Request, Context) -> Answering {
    let mut tools = Tools::new("measured", "1.0");
    for number in 0..9 {
        let name = format!("tool_{number}");
        tools = tools.tool(name, "Does nothing", async |(): (), _| Ok(()));
    }
    let tools = tools.tool(
        "forecast",
        "Forecasts the weather",
        async |asked: Asked, _| Ok(forecast(asked.city, asked.days, asked.celsius)),
    );
    tools.handler()
}

/// The handler as the examples of the adapters have it.
pub(super) async fn untyped(request: Request, _: Context) -> Result<Payload, ErrorObject> {
    let params = request.params.as_ref();
    let params: Value = params
        .and_then(|params| params.parse().ok())
        .unwrap_or_default();
    let result = match (&*request.method, params["name"].as_str()) {
        ("tools/call", Some("forecast")) => {
            let arguments = &params["arguments"];
            let (Some(city), Some(days), Some(is_celsius)) = (
                arguments["city"].as_str(),
                arguments["days"].as_u64(),
                arguments["celsius"].as_bool(),
            ) else {
                return Err(ErrorObject::new(code::INVALID_PARAMS, "bad arguments"));
            };
            let forecast = forecast(city.to_owned(), days as u32, is_celsius);
            let day = |day: &Day| json!({"high": day.high, "low": day.low, "sky": day.sky});
            let days: Vec<_> = forecast.days.iter().map(day).collect();
            let structured = json!({"city": forecast.city, "days": days});
            let text = structured.to_string();
            json!({"content": [{"type": "text", "text": text}], "structuredContent": structured})
        }
        (other, _) => return Err(ErrorObject::new(code::METHOD_NOT_FOUND, other)),
    };
    Ok(Payload::of(&result).expect("JSON"))
}

/// The handler of somebody who writes a type for everything.
pub(super) async fn by_hand(request: Request, _: Context) -> Result<Response, ErrorObject> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
        arguments: Asked,
    }
    #[derive(Serialize)]
    struct Text<'a> {
        r#type: &'static str,
        text: &'a str,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct CallResult<'a> {
        content: [Text<'a>; 1],
        structured_content: &'a RawValue,
    }
    let invalid =
        |error: serde_json::Error| ErrorObject::new(code::INVALID_PARAMS, error.to_string());
    match (&*request.method, &request.params) {
        ("tools/call", Some(params)) => {
            let params: Params<'_> = params.parse().map_err(invalid)?;
            if params.name != "forecast" {
                return Err(ErrorObject::new(code::INVALID_PARAMS, "unknown tool"));
            }
            let asked = params.arguments;
            let forecast = forecast(asked.city, asked.days, asked.celsius);
            let json = serde_json::value::to_raw_value(&forecast).map_err(invalid)?;
            let result = CallResult {
                content: [Text {
                    r#type: "text",
                    text: json.get(),
                }],
                structured_content: &json,
            };
            Ok(Payload::of(&result).map_err(invalid)?.into())
        }
        (other, _) => Err(ErrorObject::new(code::METHOD_NOT_FOUND, other)),
    }
}
