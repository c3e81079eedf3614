//! Parses `Retry-After`. Reads no clock: a date is relative to the `Date` of the same response.

use core::time::Duration;

use super::{Fields, names};

/// The largest number of seconds. A recipient may replace larger values with this one (RFC 9111, section 1.2.2).
const MAX_SECONDS: u64 = 1 << 31;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// The delay in `Retry-After`, given in seconds or as a date. `None` if it is neither, or if it is a date and the response has no `Date`.
pub(crate) fn retry_after(fields: &Fields<'_>) -> Option<Duration> {
    let value = fields.get(names::RETRY_AFTER)?;
    let seconds = if is_number(value) {
        // Parsing fails only for a number that does not fit into 64 bits.
        value.parse().unwrap_or(MAX_SECONDS)
    } else {
        seconds_of(value)?.saturating_sub(seconds_of(fields.get(names::DATE)?)?)
    };
    Some(Duration::from_secs(seconds.min(MAX_SECONDS)))
}

/// Seconds since the last day of February in the year before year 0, of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn seconds_of(date: &str) -> Option<u64> {
    let (weekday, rest) = date.split_once(", ")?;
    let (day, rest) = rest.split_once(' ')?;
    let (month, rest) = rest.split_once(' ')?;
    let (year, rest) = rest.split_once(' ')?;
    let (time, zone) = rest.split_once(' ')?;
    let (hour, rest) = time.split_once(':')?;
    let (minute, second) = rest.split_once(':')?;
    if !WEEKDAYS.contains(&weekday) || zone != "GMT" {
        return None;
    }
    let month = MONTHS.iter().position(|name| *name == month)?;
    let days = days_before(digits(year, 4)?, month as u64, digits(day, 2)?)?;
    // The sixtieth second is a leap second.
    let (hour, minute, second) = (digits(hour, 2)?, digits(minute, 2)?, digits(second, 2)?);
    let is_time = hour < 24 && minute < 60 && second <= 60;
    is_time.then(|| ((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// The number of days since that origin. `month` counts from 0. `None` if the month has no such day.
fn days_before(year: u64, month: u64, day: u64) -> Option<u64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        1 if is_leap => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // A year that begins in March has the leap day at its end. Its months alternate between 31 and 30 days: five of them have 153 days.
    let (year, month) = if month < 2 {
        (year, month + 10)
    } else {
        (year + 1, month - 2)
    };
    let leap_days = year.div_ceil(4) - year.div_ceil(100) + year.div_ceil(400);
    Some(365 * year + leap_days + (153 * month + 2) / 5 + day)
}

fn digits(text: &str, count: usize) -> Option<u64> {
    let is_fit = text.len() == count && is_number(text);
    text.parse().ok().filter(|_| is_fit)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    const NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn after(retry_after: &str, date: Option<&str>) -> Option<u64> {
        let mut fields = Fields::new().and("Retry-After", retry_after);
        if let Some(date) = date {
            fields.push("Date", date);
        }
        super::retry_after(&fields).map(|delay| delay.as_secs())
    }

    #[test]
    fn seconds_are_read_and_capped() {
        for (value, seconds) in [
            ("0", 0),
            ("120", 120),
            ("007", 7),
            (" 5 ", 5),
            ("2147483648", MAX_SECONDS),
            ("2147483649", MAX_SECONDS),
            ("99999999999999999999999999", MAX_SECONDS),
        ] {
            assert_eq!(after(value, None), Some(seconds), "{value}");
        }
        assert_eq!(retry_after(&Fields::new()), None);
    }

    #[test]
    fn date_is_relative_to_the_date_of_the_response() {
        for (value, seconds) in [
            (NOW, 0),
            ("Sun, 06 Nov 1994 08:49:38 GMT", 1),
            ("Sun, 06 Nov 1994 09:50:38 GMT", 3661),
            ("Mon, 07 Nov 1994 08:49:37 GMT", 86_400),
            ("Mon, 06 Nov 1995 08:49:37 GMT", 365 * 86_400),
            ("Wed, 06 Nov 1996 08:49:37 GMT", 731 * 86_400),
            ("Sat, 31 Dec 9999 23:59:60 GMT", MAX_SECONDS),
            // A time in the past means no delay.
            ("Sun, 06 Nov 1994 08:49:36 GMT", 0),
            ("Sat, 01 Jan 0000 00:00:00 GMT", 0),
        ] {
            assert_eq!(after(value, Some(NOW)), Some(seconds), "{value}");
        }
        assert_eq!(after(NOW, None), None);
        assert_eq!(after(NOW, Some("yesterday")), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri too long")]
    fn day_numbers_are_consecutive() {
        let mut last = days_before(0, 0, 1).unwrap() - 1;
        for year in 0..=9999 {
            for month in 0..12 {
                for day in (1..=31).filter_map(|day| days_before(year, month, day)) {
                    assert_eq!(day, last + 1, "in month {month} of {year}");
                    last = day;
                }
            }
        }
        // 25 cycles of 400 years.
        assert_eq!(last - days_before(0, 0, 1).unwrap() + 1, 25 * 146_097);
    }

    #[test]
    fn invalid_values_are_ignored() {
        for value in [
            "",
            "-1",
            "+1",
            "1.5",
            "1e3",
            "soon",
            "12 s",
            "0x10",
            // Other time zones and the obsolete date formats are not accepted.
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 06 Nov 1994 08:49:37:00 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT ago",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Son, 06 Nov 1994 08:49:37 GMT",
            "06 Nov 1994 08:49:37 GMT",
            // No such day or time.
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 1994 08:49:37 GMT",
            "Sun, 29 Feb 1900 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
        ] {
            assert_eq!(after(value, Some(NOW)), None, "{value}");
            assert_eq!(after(NOW, Some(&format!("x{value}"))), None, "{value}");
        }
        let bytes = Fields::from_iter([("retry-after", &b"\xff"[..])]);
        assert_eq!(retry_after(&bytes), None);
    }
}
