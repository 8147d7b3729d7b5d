//! What the guide says of moving here from `tower-resilience-coalesce`: this file is what its
//! app is after it.

// The app.
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tower_singleflight::{RedisStore, SingleFlightLayer, key_fn};

#[derive(serde::Serialize, serde::Deserialize)]
struct Report {
    pages: u32,
}

async fn report(year: u32) -> Result<Report, std::num::TryFromIntError> {
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    Ok(Report { pages: u32::from(u16::try_from(year)?) })
}

async fn app() -> Result<(), BoxError> {
    let store = RedisStore::connect("redis://127.0.0.1/").await?;
    let key = key_fn(|year: &u32| Some(year.to_string()));
    let reports = ServiceBuilder::new()
        .layer(SingleFlightLayer::values(key).store(store))
        .service_fn(report);
    let (one, other) = tokio::join!(reports.clone().oneshot(2024), reports.oneshot(2024));
    println!("{} pages, and as many: {}", one?.pages, other?.pages);
    Ok(())
}
// Its end.

#[test]
fn an_app_is_moved_over_in_five_lines() {
    // That it compiles is what matters: it would look for a server of its own.
    let _ = app;
    let page = include_str!("../../docs/moving.md");
    let page = page.lines().skip_while(|line| *line != "```diff").skip(1);
    let diff: Vec<_> = page.take_while(|line| *line != "```").collect();
    let after: Vec<_> = diff.iter().filter(|line| !line.starts_with('-')).collect();
    let after = after.iter().map(|line| line.get(1..).unwrap_or_default());
    let here = include_str!("moved.rs").lines().skip_while(|line| *line != "// The app.").skip(1);
    assert!(after.eq(here.take_while(|line| *line != "// Its end.")), "{diff:#?}");
    assert_eq!(diff.iter().filter(|line| line.starts_with('+')).count(), 5);
}
