//! The hardware: two UARTs, two LEDs, a clock, and what happens on a panic. Must not depend on links.
//!
//! The board is an Arm MPS2 with the image AN386, a Cortex-M4 at 25 MHz, as QEMU emulates it. To port the firmware, rewrite this file.

use core::cell::Cell;
use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use core::time::Duration;

use cortex_m::interrupt::{self, InterruptNumber, Mutex};
use cortex_m::peripheral::syst::SystClkSource;
use cortex_m::peripheral::{NVIC, SCB};
use cortex_m_rt::{ExceptionFrame, exception};
use everlink::Instant;

/// The clock of the processor, in Hz.
const CLOCK: u32 = 25_000_000;

/// Carries the messages.
const UART0: Uart = Uart(0x4000_4000);
/// Carries lines for people, as standard error does.
const UART1: Uart = Uart(0x4000_5000);
const LEDS: Register = Register(0x4002_8000);

/// Starts the clock and the UARTs. Call it once.
pub(crate) fn start() {
    if let Some(core) = cortex_m::Peripherals::take() {
        let mut tick = core.SYST;
        tick.set_clock_source(SystClkSource::Core);
        tick.set_reload(CLOCK / 1000 - 1);
        tick.clear_current();
        tick.enable_interrupt();
        tick.enable_counter();
    }
    for uart in [UART0, UART1] {
        uart.baud_divisor().set(CLOCK / 115_200);
    }
    UART1.control().set(TRANSMIT);
    UART0
        .control()
        .set(TRANSMIT | RECEIVE | TRANSMIT_INTERRUPT | RECEIVE_INTERRUPT);
    Line::Receive.unmask();
    Line::Transmit.unmask();
}

// ---- the clock ----

/// Milliseconds since the start. A counter of 32 bits would wrap after 49 days, and the clock of a link must never go back.
static MILLIS: Mutex<Cell<u64>> = Mutex::new(Cell::new(0));

/// The time since the start.
pub(crate) fn now() -> Instant {
    let millis = interrupt::free(|cs| MILLIS.borrow(cs).get());
    Instant::from_origin(Duration::from_millis(millis))
}

#[exception]
fn SysTick() {
    interrupt::free(|cs| {
        let millis = MILLIS.borrow(cs);
        millis.set(millis.get() + 1);
    });
}

/// Sleeps until the deadline. Ends early when a byte has arrived, if input is wanted, and when the UART takes a byte, if there is output.
pub(crate) fn sleep(until: Option<Instant>, wants_input: bool, has_output: bool) {
    let is_over = || {
        (wants_input && !RECEIVED.is_empty())
            || (has_output && UART0.can_send())
            || until.is_some_and(|until| until <= now())
    };
    loop {
        // With interrupts disabled, one that comes after the check still ends `wfi`, and runs when they are enabled again.
        let is_over = interrupt::free(|_| {
            let is_over = is_over();
            if !is_over {
                cortex_m::asm::wfi();
            }
            is_over
        });
        if is_over {
            return;
        }
    }
}

// ---- the UARTs ----

/// Bits of the state and of the interrupt status. Bit 0 is about sending, bit 1 about receiving.
const SENDING: u32 = 1;
const RECEIVING: u32 = 1 << 1;
/// Bits of the control register.
const TRANSMIT: u32 = 1;
const RECEIVE: u32 = 1 << 1;
const TRANSMIT_INTERRUPT: u32 = 1 << 2;
const RECEIVE_INTERRUPT: u32 = 1 << 3;

/// Bytes that arrived and were not read yet.
static RECEIVED: Ring = Ring::new();

/// Moves bytes that arrived to `buffer`, and returns how many.
pub(crate) fn receive(buffer: &mut [u8]) -> usize {
    let mut count = 0;
    for (place, byte) in buffer
        .iter_mut()
        .zip(core::iter::from_fn(|| RECEIVED.pop()))
    {
        *place = byte;
        count += 1;
    }
    // The interrupt may have found the ring full.
    Line::Receive.unmask();
    count
}

/// Gives the UART as many bytes as it takes now, and returns how many.
pub(crate) fn send(bytes: &[u8]) -> usize {
    let taken = bytes.iter().take_while(|byte| {
        let can_send = UART0.can_send();
        if can_send {
            UART0.data().set(u32::from(**byte));
        }
        can_send
    });
    taken.count()
}

/// Serves the interrupts of UART 0. cortex-m-rt calls this function for every interrupt of the board, because no crate names them.
#[exception]
unsafe fn DefaultHandler(line: i16) {
    if line == Line::Transmit as i16 {
        // Only `wfi` has to end.
        UART0.interrupts().set(SENDING);
        return;
    }
    while UART0.state().get() & RECEIVING != 0 {
        if !RECEIVED.has_room() {
            // Back pressure: the byte stays in the UART, and the request stays pending. A board with the RTS line stops the sender here.
            return NVIC::mask(Line::Receive);
        }
        // Cleared before the byte is read: the next byte sets it again.
        UART0.interrupts().set(RECEIVING);
        RECEIVED.push(UART0.data().get() as u8);
    }
    UART0.interrupts().set(RECEIVING);
}

/// The interrupts of UART 0.
#[derive(Clone, Copy)]
enum Line {
    Receive = 0,
    Transmit = 1,
}

impl Line {
    fn unmask(self) {
        // SAFETY: no critical section of this program depends on the mask of an interrupt.
        unsafe { NVIC::unmask(self) };
    }
}

// SAFETY: the numbers are those of the board, and each has one name.
unsafe impl InterruptNumber for Line {
    fn number(self) -> u16 {
        self as u16
    }
}

/// A queue of bytes from the interrupt to the program.
struct Ring {
    bytes: [AtomicU8; Ring::SIZE],
    /// The number of bytes that were ever pushed. Only `push` stores it.
    pushed: AtomicUsize,
    /// The number of bytes that were ever popped. Only `pop` stores it.
    popped: AtomicUsize,
}

impl Ring {
    /// A power of two, so that the counters may wrap.
    const SIZE: usize = 1024;

    const fn new() -> Ring {
        Ring {
            bytes: [const { AtomicU8::new(0) }; Ring::SIZE],
            pushed: AtomicUsize::new(0),
            popped: AtomicUsize::new(0),
        }
    }

    fn len(&self) -> usize {
        // Acquire in `pop` sees the byte that was stored before this counter was released by `push`, and the other way round.
        let pushed = self.pushed.load(Ordering::Acquire);
        pushed.wrapping_sub(self.popped.load(Ordering::Acquire))
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn has_room(&self) -> bool {
        self.len() < Ring::SIZE
    }

    fn push(&self, byte: u8) {
        let at = self.pushed.load(Ordering::Relaxed);
        self.bytes[at % Ring::SIZE].store(byte, Ordering::Relaxed);
        self.pushed.store(at.wrapping_add(1), Ordering::Release);
    }

    fn pop(&self) -> Option<u8> {
        if self.is_empty() {
            return None;
        }
        let at = self.popped.load(Ordering::Relaxed);
        let byte = self.bytes[at % Ring::SIZE].load(Ordering::Relaxed);
        self.popped.store(at.wrapping_add(1), Ordering::Release);
        Some(byte)
    }
}

/// A UART of Arm's Cortex-M System Design Kit, by its address.
#[derive(Clone, Copy)]
struct Uart(usize);

impl Uart {
    const fn data(self) -> Register {
        Register(self.0)
    }

    const fn state(self) -> Register {
        Register(self.0 + 0x4)
    }

    const fn control(self) -> Register {
        Register(self.0 + 0x8)
    }

    /// Read: which interrupts are requested. Write: which requests to clear.
    const fn interrupts(self) -> Register {
        Register(self.0 + 0xC)
    }

    const fn baud_divisor(self) -> Register {
        Register(self.0 + 0x10)
    }

    fn can_send(self) -> bool {
        self.state().get() & SENDING == 0
    }
}

// ---- the LEDs ----

/// Switches an LED, number 0 or 1.
pub(crate) fn set_led(led: u8, is_on: bool) {
    let others = LEDS.get() & !(1 << led);
    LEDS.set(others | u32::from(is_on) << led);
}

/// Whether the LED is on, as the register says.
pub(crate) fn led(led: u8) -> bool {
    LEDS.get() & (1 << led) != 0
}

// ---- registers ----

/// A register of the board, by its address.
#[derive(Clone, Copy)]
struct Register(usize);

impl Register {
    fn get(self) -> u32 {
        // SAFETY: the addresses in this file are registers of the board, aligned and always readable.
        unsafe { (self.0 as *const u32).read_volatile() }
    }

    fn set(self, value: u32) {
        // SAFETY: as above; and no register in this file makes the board write to memory.
        unsafe { (self.0 as *mut u32).write_volatile(value) }
    }
}

// ---- failures ----

/// Writes a line to UART 1, and waits until it is sent.
pub(crate) fn log(line: impl fmt::Display) {
    // Writing to a UART cannot fail.
    let _ = writeln!(Log, "{line}");
}

struct Log;

impl Write for Log {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            while !UART1.can_send() {}
            UART1.data().set(u32::from(byte));
        }
        Ok(())
    }
}

/// Logs the panic and resets the board. A full heap is such a panic. A board that only halts would look like a slow server.
#[panic_handler]
fn panic(panic: &PanicInfo<'_>) -> ! {
    log(panic);
    SCB::sys_reset()
}

/// Does the same after a fault of the processor, for example a read outside of the memory.
#[exception]
unsafe fn HardFault(frame: &ExceptionFrame) -> ! {
    log(format_args!("hard fault at {:#010x}", frame.pc()));
    SCB::sys_reset()
}
