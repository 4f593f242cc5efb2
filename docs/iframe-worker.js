/* Lets the search of the site work where its pages are opened as files.

   A browser refuses `new Worker(...)` for a page that was opened from a file. Here, a hidden frame runs the
   script of the search instead, and passes messages in both directions as a worker does. The theme's plugin
   `offline` makes the search index a script for the same reason; it would load this file from another host,
   unless `extra.polyfills` in mkdocs.yml names one that is called like this. */
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.loaded = new Promise((resolve) => {
        const script = inside.document.createElement("script");
        script.src = new URL(address, document.baseURI);
        script.onload = () => resolve(inside);
        inside.document.body.append(script);
      });
      this.frame = frame;
    }

    postMessage(data) {
      this.loaded.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
