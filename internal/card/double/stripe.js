// A stand-in for Stripe.js that can do one thing: show the page of an embedded session in a frame.
(() => {
  const base = document.currentScript.src.replace(/\/dahlia\/stripe\.js.*$/, '');

  const createEmbeddedCheckoutPage = async (options) => {
    const secret = options.clientSecret || await options.fetchClientSecret();
    const frame = document.createElement('iframe');
    frame.src = base + '/c/embed/' + encodeURIComponent(secret);
    frame.title = 'Payment (test: no money moves)';
    frame.style.cssText = 'width: 100%; min-height: 46rem; border: 0';
    // After the payment, or for a step at the bank, the whole page opens the next address.
    const leave = (event) => {
      if (event.source === frame.contentWindow && event.origin === new URL(base).origin && event.data?.leave) {
        location.assign(event.data.leave);
      }
    };
    addEventListener('message', leave);
    const unmount = () => {
      removeEventListener('message', leave);
      frame.remove();
    };
    return {
      mount: (at) => (typeof at === 'string' ? document.querySelector(at) : at).replaceChildren(frame),
      unmount,
      destroy: unmount,
    };
  };

  window.Stripe = () => ({ createEmbeddedCheckoutPage, initEmbeddedCheckout: createEmbeddedCheckoutPage });
})();
