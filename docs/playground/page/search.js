// A search for a shorter schedule, in a worker of its own, so that one goes on typing.

/// How long it may take, in seconds.
const LONGEST_SEARCH = 10;

class Search {
  /// `said` is told how it goes, `done` what came of it; a search that is stopped has no end.
  constructor(worker, packed, question, said, done) {
    this.worker = worker;
    const begun = performance.now();
    let best = "";
    const seconds = () => `${Math.round((performance.now() - begun) / 1000)} s`;
    const tell = () => said(`searching, ${seconds()}${best && `: ${best}`}`);
    this.clock = setInterval(tell, 1000);
    const end = (told) => {
      this.stop();
      done(told);
    };
    worker.onmessage = ({ data }) => {
      if (data.gallery) worker.postMessage({ id: "search", by: "search", question: { ...question, seconds: LONGEST_SEARCH } });
      else if (data.news !== undefined) {
        best = data.news;
        tell();
      } else end(data.answer ? JSON.parse(data.answer) : { bug: data.bug ?? data.unusable });
    };
    worker.onerror = (event) => end({ bug: event.message });
    worker.postMessage({ packed });
    tell();
  }

  stop() {
    clearInterval(this.clock);
    this.worker.terminate();
  }
}
